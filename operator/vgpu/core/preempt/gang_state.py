"""Where a gang stands: who of it runs, who waits, who must start together, and who runs in vain.

Enter: a Gang, its pods as facts, whose Binding is on its way. Leave: a GangState and the answers that follow from
it. A gang starts with at least its minimum at once; from then on each further member is a pod like any other.
Nothing here places, evicts or remembers.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from vgpu import names
from vgpu.core.facts import Phase, PodFact
from vgpu.core.preempt.facts import Gang
from vgpu.core.preempt.pod_groups import refusal_without
from vgpu.core.preempt.recovery import released_of_broken_gang
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.terms import GroupName

OWN_GATE = frozenset({names.GANG_GATE})
NO_GATE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides who may start: pods of this scheduler; those that only our own gate holds back only where we
    may lift it."""

    scheduler_name: str
    lift_gates: bool


@dataclass(frozen=True, slots=True)
class GangState:
    """One gang now. `running`: bound, and not over; `waiting`: could start, oldest first; `on_the_way`: uids of
    the waiting whose cards are booked; `held_back`: unbound, and could not start.
    """

    gang: Gang
    running: tuple[PodFact, ...] = ()
    waiting: tuple[PodFact, ...] = ()
    on_the_way: frozenset[str] = frozenset()
    held_back: int = 0

    @property
    def missing(self) -> int:
        """How many must still be bound, all at once, until the gang may run."""
        minimum = self.gang.minimum
        if not self.gang.known:
            return max(1, minimum - len(self.running))
        return max(0, minimum - len(self.running)) if minimum > 1 else 0

    @property
    def group(self) -> GroupName | None:
        """What its pods name."""
        groups = (pod.terms.group for pod in (*self.waiting, *self.running) if pod.terms is not None)
        return next((group for group in groups if group is not None), None)

    @property
    def runs(self) -> bool:
        """True when enough of it is bound: every other member may come when it likes."""
        return self.missing == 0

    @property
    def uids(self) -> frozenset[str]:
        """Of those who run and wait."""
        return frozenset(pod.uid for pod in (*self.running, *self.waiting))

    @property
    def gone(self) -> bool:
        """True when nobody of it is left who runs, or may yet."""
        return not (self.running or self.waiting or self.held_back)

    @property
    def complete(self) -> bool:
        """True when enough pods exist for it to run, and its PodGroup."""
        return self.gang.known and len(self.waiting) >= self.missing

    @property
    def required(self) -> tuple[PodFact, ...]:
        """The members that room must be made for, the oldest: whoever else waits uses what is idle (S53)."""
        return self.waiting[: self.missing] if self.complete else ()

    @property
    def partial(self) -> bool:
        """True when some are bound, too few, and others wait without a Binding on its way: what is bound runs in
        vain. Where nobody would complete it, its own controller knows better."""
        short = 0 < len(self.running) < self.gang.minimum
        return short and bool(self.waiting or self.held_back) and not self.on_the_way


def gang_state(gang: Gang, pods: Iterable[PodFact], booked: Collection[str], rules: Rules) -> GangState:
    """Sort the gang's pods. `booked`: uids whose cards are booked and whose Binding is not seen yet."""
    listed = sorted(pods, key=lambda pod: (pod.created, pod.uid))
    running = tuple(pod for pod in listed if counts_as_running(pod))
    unbound = [pod for pod in listed if not (pod.node or pod.ended or pod.terminating)]
    waiting = tuple(pod for pod in unbound if may_start(pod, rules))
    on_the_way = frozenset(pod.uid for pod in waiting if pod.uid in booked)
    return GangState(gang, running, waiting, on_the_way, len(unbound) - len(waiting))


def counts_as_running(pod: PodFact) -> bool:
    """True for a bound member that does its part. One that has succeeded is not needed any more: the gang's
    minimum is lower by it. A failed one is missing: its controller makes another."""
    return bool(pod.node) and not (pod.terminating or pod.ended or pod.phase is Phase.FAILED)


def may_start(pod: PodFact, rules: Rules) -> bool:
    """True for an unbound member that nothing but room and its gang holds back."""
    if pod.request is None or pod.scheduler_name != rules.scheduler_name:
        return False
    gates = pod.terms.gates if pod.terms is not None else NO_GATE
    return not pod.gated or (rules.lift_gates and bool(gates) and gates <= OWN_GATE)


def starts_with(state: GangState, uids: Collection[str]) -> bool:
    """True when these members, and those that run, are enough."""
    return state.gang.known and sum(pod.uid in uids for pod in state.waiting) >= state.missing


def why_not_alone(state: GangState, sent: Collection[str], uid: str, room: int | None = None) -> Refusal | None:
    """Why this member is not to be bound now, or None. `sent`: members for whom cards are held to start together;
    `room`: for how many there was room when it was last looked for, -1 = its queue was against it."""
    if state.runs or (uid in sent and starts_with(state, sent)):
        return None
    name, wanted = state.gang.key, state.gang.minimum
    if not state.gang.known and state.group is not None:
        return refusal_without(state.group, state.gang.pod_group)
    if not state.complete:
        there = len(state.waiting) + len(state.running)
        more = f", {state.held_back} of its pods are held back otherwise" if state.held_back else ""
        text = f"gang {name} starts with {wanted} pods at once, and only {there} are there{more}"
        return Refusal(Reason.GANG_INCOMPLETE, text)
    if uid not in sent and starts_with(state, sent):
        return Refusal(Reason.GANG_WAITS, f"{wanted} other pods of gang {name} start first")
    if room is not None and room < 0:
        text = (
            f"gang {name} starts with {wanted} pods at once, and its queue does not let the {state.missing} start"
        )
        return Refusal(Reason.GANG_WAITS, f"{text} that it lacks")
    found = "" if room is None else f"; there was room for {room} of the {state.missing} that it lacks"
    return Refusal(Reason.GANG_WAITS, f"gang {name} starts when {wanted} of its pods fit at once{found}")


def in_vain(state: GangState, since_seconds: int, grace_seconds: int, now_seconds: int) -> tuple[PodFact, ...]:
    """Members that are to go since too few are bound, and that for longer than the grace (S51); () before."""
    if not state.partial:
        return ()
    bound = [pod.uid for pod in state.running]
    uids = set(released_of_broken_gang(bound, state.gang.minimum, since_seconds, grace_seconds, now_seconds))
    return tuple(pod for pod in state.running if pod.uid in uids)
