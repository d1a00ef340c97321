"""What people are told of a plan while it lives: its owner, who takes a seat, its victims; and what it waits for.

Enters: plans, and how they stand. Leaves: Events to be written, one short text for status and CLI. May not live
here: the words (core.preempt.words, core.preempt.plan_waits), what a plan does.
"""

from collections.abc import Callable, Collection

from vgpu.controller.preempt.bodies import time_words
from vgpu.controller.preempt.keeper_parts import KeeperParts
from vgpu.controller.preempt.told import CARDS_HELD, SEAT_TAKEN, Going, event_about, victim_event
from vgpu.controller.writes import EventWrite
from vgpu.core.preempt.facts import PlanFact
from vgpu.core.preempt.plan import Progress, key_of
from vgpu.core.preempt.plan_waits import held_message, others_leaving, seat_message, waits_for
from vgpu.core.preempt.situation import Situation, situation_of
from vgpu.core.preempt.words import Held
from vgpu.kube.objects import Key


class PlanWords:
    """See the module."""

    def __init__(self, parts: KeeperParts) -> None:
        self._parts = parts

    def waits_for(self, plan: PlanFact, progress: Progress) -> str:
        """What the plan waits for now."""
        return waits_for(self._situation(plan, progress), self._name_of, time_words)

    def victim_event(self, plan: PlanFact, uid: str) -> EventWrite | None:
        """What a victim that is still known is told."""
        workloads = self._parts.roster.workloads
        goes, standing = workloads.get(uid), self._parts.roster.standing()
        owner = next((workloads[uid] for uid in plan.owner_uids if uid in workloads), None)
        if goes is None:
            return None
        going = Going(goes, self._cards_of(uid))
        return victim_event(standing, plan, owner, going, self._parts.wall.now_seconds())

    def tell_owner(self, plan: PlanFact, reason: str, message: str) -> None:
        """Tell all of the owner's pods the same, once for each plan."""
        for pod in self.owner_pods(plan):
            self._parts.told.soon(event_about(pod, reason, message, about=key_of(plan), if_absent=True))

    def tell_held(self, plan: PlanFact) -> None:
        """Nobody is evicted for the plan: its owner is told who leaves the cards that are held for it."""
        leaving, name = others_leaving(self._situation(plan, Progress())), key_of(plan)
        for pod in self.owner_pods(plan):
            self._tell_of_cards(plan, pod, CARDS_HELD, lambda where: held_message(where, leaving, name))

    def tell_seats(self, plan: PlanFact, uids: Collection[str]) -> None:
        """These pods have taken the seats of others that are gone."""
        gang, name = plan.owner_name, key_of(plan)
        for pod in self.owner_pods(plan):
            if pod.uid in uids:
                self._tell_of_cards(plan, pod, SEAT_TAKEN, lambda where: seat_message(where, gang, name))

    def owner_pods(self, plan: PlanFact) -> list[Key]:
        """Those of the owner's pods that are still known."""
        pods = [pod for uid in plan.owner_uids if (pod := self._parts.ledger.pod(uid)) is not None]
        return [Key(pod.namespace, pod.name, pod.uid) for pod in pods]

    def _tell_of_cards(self, plan: PlanFact, pod: Key, reason: str, words: Callable[[str], str]) -> None:
        mine = [card for card in plan.reservations if card.reservation.uid == pod.uid]
        held = Held(key_of(plan), [card.reservation.uuid for card in mine], mine[0].node if mine else "")
        self._parts.told.soon(event_about(pod, reason, words(held.where), about=key_of(plan), if_absent=True))

    def _situation(self, plan: PlanFact, progress: Progress) -> Situation:
        world = self._parts.worlds.of(plan, look_elsewhere=False)
        return situation_of(plan, world, progress, self._parts.wall.now_seconds())

    def _name_of(self, uid: str) -> str:
        pod = self._parts.ledger.pod(uid)
        return uid if pod is None else f"{pod.namespace}/{pod.name}"

    def _cards_of(self, uid: str) -> list[str]:
        pod = self._parts.ledger.pod(uid)
        held = pod.assignment.containers if pod is not None and pod.assignment is not None else ()
        return list(dict.fromkeys(card.uuid for container in held for card in container.cards))
