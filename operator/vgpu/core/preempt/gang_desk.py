"""All gangs as they stand, who of them was sent to start together, and what that means for each member.

Enters: the ledger and the roster, which others keep; holds that were made for gangs, and for how many members
there was room. Leaves: states, refusals for members that may not start alone, whom to make room for. Mutable, with
one owner; no clock, no I/O. What it remembers may be lost: members are then refused until they are sent anew.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from vgpu.core.facts import PodFact
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.facts import Gang, Workload
from vgpu.core.preempt.gang_book import GangBook
from vgpu.core.preempt.gang_seats import GangNow
from vgpu.core.preempt.gang_state import GangState, Rules, gang_state, may_start, starts_with, why_not_alone
from vgpu.core.preempt.pod_groups import GroupKind, note_without_kind, refusal_without
from vgpu.core.preempt.reservations import PlanHold
from vgpu.core.preempt.seating import Member
from vgpu.core.reasons import Refusal
from vgpu.core.terms import GroupSource


class GangRoster(Protocol):
    """What is asked of the roster. `gangs`: what groups mean."""

    gangs: GangBook

    def gang_of(self, uid: str) -> Gang | None:
        """The gang of this pod."""

    def members(self, gang_key: str) -> tuple[str, ...]:
        """Uids of the gang's pods that are not over."""

    @property
    def workloads(self) -> Mapping[str, Workload]:
        """All GPU pods that are not over, by uid."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Members that may start, since cards are held for enough of them: by a hold of this name in the ledger."""

    uids: frozenset[str]
    hold: str


class GangDesk:
    """See the module. Gangs are named by their keys."""

    def __init__(self, ledger: Ledger, roster: GangRoster, rules: Rules) -> None:
        self._ledger = ledger
        self._roster = roster
        self._rules = rules
        self._gangs: dict[str, Gang] = {}
        self._key_of: dict[str, str] = {}
        self._uids: dict[str, set[str]] = {}
        self._sent: dict[str, Sent] = {}
        self._room: dict[str, int] = {}

    def all_keys(self) -> list[str]:
        """Every gang that was noted and has pods."""
        return sorted(self._gangs)

    def note(self, uid: str) -> str:
        """Look at this pod anew; hands back the key of the gang that it is of, or was of, "" = none.

        A gated pod of a group that is no gang has its group's: its gate is to be lifted too.
        """
        gang = self._roster.gang_of(uid)
        known = self._key_of.get(uid, "")
        if gang is not None and gang.key != known:
            self._forget_pod(uid)
            self._key_of[uid] = known = gang.key
        if known and gang is not None and self._ledger.pod(uid) is not None:
            self._uids.setdefault(known, set()).add(uid)
            self._gangs[known] = gang
        elif known:
            self._refresh(known, gang)
        return known or self._group_of_gated(uid)

    def starting_alone(self, key: str) -> list[PodFact]:
        """Waiting pods of a group of this key that is no gang."""
        pods = (self._ledger.pod(uid) for uid in self._roster.members(key) if self._roster.gang_of(uid) is None)
        return [pod for pod in pods if pod is not None and not pod.node and may_start(pod, self._rules)]

    def _group_of_gated(self, uid: str) -> str:
        pod = self._ledger.pod(uid)
        terms = pod.terms if pod is not None and pod.gated and not pod.node else None
        return terms.group.key if terms is not None and terms.group is not None else ""

    def state(self, key: str) -> GangState | None:
        """The gang now; None when it has no pods any more."""
        self._refresh(key, None)
        gang = self._gangs.get(key)
        if gang is None:
            return None
        pods = [pod for uid in self._uids[key] if (pod := self._ledger.pod(uid)) is not None]
        booked = {pod.uid for pod in pods if self._ledger.booking(pod.uid) is not None}
        return gang_state(gang, pods, booked, self._rules)

    def state_of(self, uid: str) -> GangState | None:
        """The state of the pod's gang; None for a pod of none, or of one whose pods start one by one."""
        gang = self._roster.gang_of(uid)
        if gang is None or not gang.together:
            return None
        self.note(uid)
        return self.state(gang.key)

    def now(self, key: str, seated: Collection[str]) -> GangNow | None:
        """The gang while its cards are held for the `seated` uids; None when there is none any more: nobody of it
        is left, or its PodGroup was deleted and each pod starts by itself."""
        state, book = self.state(key), self._roster.gangs
        alone = state is not None and state.gang.minimum <= 1
        if state is None or state.gone or (alone and book.is_dissolved(key)):
            return None
        free = [pod for pod in state.waiting if pod.uid not in seated and not self._has_cards(pod.uid)]
        spare = tuple(Member(pod.uid, pod.request) for pod in free if pod.request is not None)
        if alone and not book.is_known(key):
            return GangNow(None, whole=False, spare=spare)
        return GangNow(state.missing, state.complete, spare)

    def knows(self, uid: str) -> bool:
        """Whether the pod's event has come."""
        return self._ledger.pod(uid) is not None

    def send(self, key: str, sent: Sent) -> None:
        """These members start together."""
        self._sent[key] = sent
        self._room.pop(key, None)

    def recall(self, key: str) -> None:
        """They do not."""
        self._sent.pop(key, None)

    def sent(self, key: str) -> Sent | None:
        """Who was sent, while what is held for them stands."""
        sent = self._sent.get(key)
        if sent is not None and self._ledger.plans.get(sent.hold) is None:
            del self._sent[key]
            return None
        return sent

    def all_sent(self) -> list[Sent]:
        """The same for all gangs."""
        return [sent for key in list(self._sent) if (sent := self.sent(key)) is not None]

    def short(self, key: str, room: int | None) -> None:
        """There was room for so many members only; None = nobody has looked since."""
        if room is None:
            self._room.pop(key, None)
        else:
            self._room[key] = room

    def refusal(self, pod: PodFact) -> Refusal | None:
        """Why this pod is not to be bound since its gang does not start now, or None."""
        if pod.node or self._ledger.booking(pod.uid) is not None:
            return None
        state = self.state_of(pod.uid)
        if state is None:
            return None
        key, gang, group = state.gang.key, state.gang, pod.terms.group if pod.terms is not None else None
        if group is not None and not gang.known:
            return refusal_without(group, gang.pod_group)
        sent = self.sent(key)
        uids = sent.uids if sent is not None else frozenset[str]()
        return why_not_alone(state, uids, pod.uid, self._room.get(key))

    def note_on(self, pod: PodFact) -> str:
        """What is to be said of a pod that names a PodGroup of a kind that is not served; "" = nothing."""
        group = pod.terms.group if pod.terms is not None else None
        if group is None or group.source is GroupSource.LABEL or pod.node:
            return ""
        absent = self._roster.gangs.kind(group.source) is GroupKind.ABSENT
        return note_without_kind(group) if absent else ""

    def covered(self, state: GangState) -> bool:
        """True while somebody holds cards for a member that waits: room is made for the gang already."""
        uids = {pod.uid for pod in state.waiting}
        return any(not uids.isdisjoint(hold.uids) for hold in self._ledger.plans.all())

    def planned(self, state: GangState) -> PlanHold | None:
        """The hold of somebody else under which all members that it lacks were nominated at once, or None."""
        for hold in self._ledger.plans.all():
            waiting = [pod.uid for pod in state.waiting if pod.uid in hold.uids]
            if starts_with(state, hold.uids) and waiting and all(self._nominated(uid) for uid in waiting):
                return hold
        return None

    def preemptors_of(self, uid: str) -> tuple[Workload, ...]:
        """With whom together this waiting pod is to be decided on: itself alone where it is of no gang; the
        members that its gang lacks; () when nobody is to be evicted for it: a surplus member, an incomplete gang,
        one that starts already, or that was not looked for room yet."""
        workload = self._roster.workloads.get(uid)
        if workload is None:
            return ()
        state = self.state_of(uid)
        return (workload,) if state is None else self._preemptors(state)

    def preemptors(self) -> Iterable[tuple[Workload, ...]]:
        """The same for every gang that found no room, whether kube-scheduler has tried its pods or not."""
        states = (self.state(key) for key in sorted(self._room))
        found = [self._preemptors(state) for state in states if state is not None]
        return [pods for pods in found if pods]

    def _preemptors(self, state: GangState) -> tuple[Workload, ...]:
        key = state.gang.key
        if key not in self._room or state.on_the_way or self.sent(key) is not None:
            return ()
        everybody = self._roster.workloads
        required = [everybody[pod.uid] for pod in state.required if pod.uid in everybody]
        return tuple(required) if all(pod.active for pod in required) else ()

    def _has_cards(self, uid: str) -> bool:
        """True for a pod that somebody holds cards for, or whose Binding is on its way."""
        return self._nominated(uid) or any(uid in hold.uids for hold in self._ledger.plans.all())

    def _nominated(self, uid: str) -> bool:
        return self._ledger.nomination(uid) is not None or self._ledger.booking(uid) is not None

    def _refresh(self, key: str, gang: Gang | None) -> None:
        """Take in members that were not noted one by one, and forget those that are gone."""
        members = self._roster.members(key)
        for uid in members:
            if self._key_of.get(uid) != key:
                self._forget_pod(uid)
                self._key_of[uid] = key
                self._uids.setdefault(key, set()).add(uid)
        for uid in [uid for uid in self._uids.get(key, ()) if self._ledger.pod(uid) is None]:
            self._forget_pod(uid)
        gang = gang or (self._roster.gang_of(members[0]) if members else self._gangs.get(key))
        if gang is not None and self._uids.get(key):
            self._gangs[key] = gang
        else:
            self._forget_gang(key)

    def _forget_pod(self, uid: str) -> None:
        key = self._key_of.pop(uid, "")
        if key:
            self._uids.get(key, set()).discard(uid)

    def _forget_gang(self, key: str) -> None:
        for uid in self._uids.pop(key, set()):
            self._key_of.pop(uid, None)
        for kept in (self._gangs, self._sent, self._room):
            kept.pop(key, None)
