"""One question with everything that its answer rests on, and how it is answered: for pods one after another, for a
gang at once, or for those for whom nobody goes.

Enters: a frozen DecisionWorld, pods, the gang as it stands. Leaves: the answer as JSON values, worked out in a
thread. May not live here: decisions, words.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from vgpu.controller.what_if_document import what_if_document
from vgpu.core.facts import PodFact
from vgpu.core.preempt.decision_world import NOTHING_LEARNT, Avoid, DecisionWorld
from vgpu.core.preempt.gang_state import GangState, why_not_alone
from vgpu.core.preempt.guest import Guests, with_guests
from vgpu.core.preempt.pod_groups import refusal_without
from vgpu.core.preempt.preview import Preview, pods_before
from vgpu.core.preempt.several import preview_all, preview_each, preview_idle, refused
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.wanted import plural_s

MOST_ONE_BY_ONE = 32
"""So many pods are decided on one after another at most: each is a decision of its own."""


class How(Enum):
    """TOGETHER: all or none. EACH: one after another. IDLE: nobody is evicted for them. NOT: they cannot start."""

    TOGETHER = "together"
    EACH = "each"
    IDLE = "idle"
    NOT = "not"


@dataclass(frozen=True, slots=True)
class Way:
    """How a question is answered. `uids` of whom it is answered for; `refusal`: of IDLE and NOT."""

    how: How
    uids: tuple[str, ...]
    refusal: Refusal | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """See the module. `guests`: pods that do not exist."""

    world: DecisionWorld
    way: Way
    now_seconds: int
    avoid: Avoid = NOTHING_LEARNT
    notes: tuple[str, ...] = ()
    guests: Guests | None = None

    def answer(self) -> dict[str, Any]:
        """Works the answer out; takes as long as its decisions, and more where the answer is no."""
        world = self.world if self.guests is None else with_guests(self.world, self.guests)
        found = self._found(world)
        before, notes = pods_before(world, found.pods[0]), (*self.way.notes, *self.notes)
        if before:
            said = f"{before} pod{plural_s(before)} of higher place wait{'s' if before == 1 else ''} too"
            notes = (*notes, f"{said}: room is made for them first, which this answer leaves out")
        return what_if_document(found, self.now_seconds, (*notes, *found.limits))

    def _found(self, world: DecisionWorld) -> Preview:
        pods = [world.workloads[uid] for uid in self.way.uids]
        if self.way.refusal is not None:
            idle = self.way.how is How.IDLE
            return (preview_idle if idle else refused)(world, pods, self.way.refusal)
        how = preview_all if self.way.how is How.TOGETHER else preview_each
        return how(world, pods, self.now_seconds, self.avoid)


def one_by_one(uids: Sequence[str]) -> Way:
    """For pods that have nothing to do with each other."""
    if len(uids) <= MOST_ONE_BY_ONE:
        return Way(How.EACH, tuple(uids))
    said = f"only the first {MOST_ONE_BY_ONE} of {len(uids)} pods were decided on"
    return Way(How.EACH, tuple(uids[:MOST_ONE_BY_ONE]), notes=(said,))


def with_coming(state: GangState | None, gang_state: GangState) -> GangState:
    """The gang as it stands, `state`, with those who do not exist, who wait in `gang_state`."""
    if state is None:
        return gang_state
    return replace(state, gang=gang_state.gang, waiting=(*state.waiting, *gang_state.waiting))


def in_gang(state: GangState, asked: Sequence[PodFact]) -> Way:
    """For pods of a gang that needs several: its required members start together, others where room is left."""
    uids, key = tuple(pod.uid for pod in asked), state.gang.key
    terms = asked[0].terms
    if not state.gang.known and terms is not None and terms.group is not None:
        return Way(How.NOT, uids, refusal_without(terms.group, state.gang.pod_group))
    if state.runs:
        text = f"gang {key} runs with the {state.gang.minimum} pods that it needs: nobody is evicted for one more"
        return Way(How.IDLE, uids, Refusal(Reason.GANG_SURPLUS, text))
    refusal = why_not_alone(state, (), uids[0])
    if not state.complete and refusal is not None:
        return Way(How.NOT, uids, refusal)
    required = tuple(pod.uid for pod in state.required)
    return Way(How.TOGETHER, required, notes=_beside(state, required, asked))


def _beside(state: GangState, required: Sequence[str], asked: Sequence[PodFact]) -> tuple[str, ...]:
    notes, key = [], state.gang.key
    if state.running:
        notes.append(f"{len(state.running)} of gang {key} run{'s' if len(state.running) == 1 else ''} already")
    others = [pod for pod in asked if pod.uid not in required]
    if others:
        named = f"{others[0].namespace}/{others[0].name}" + (f" and {len(others) - 1} more" if others[1:] else "")
        notes.append(f"gang {key} starts without {named}: nobody is evicted for more than it needs")
    return tuple(notes)
