"""What a queue's status says of it. Enters: the queue and its usage. Leaves: a condition as plain values."""

from dataclasses import dataclass

from vgpu.core.preempt.facts import QueueFact, StopPolicy
from vgpu.core.preempt.limits import exceeded
from vgpu.core.preempt.usage import QueueUsage
from vgpu.core.reasons import Reason


@dataclass(frozen=True, slots=True)
class QueueReady:
    """Whether new pods of the queue may start, why or why not, in words."""

    ready: bool
    reason: Reason
    message: str


def queue_ready(queue: QueueFact | None, usage: QueueUsage, fault: str = "") -> QueueReady:
    """`queue` None: its object could never be read; `fault` says what is wrong with the object now."""
    if fault:
        kept = "the queue stays as it was before" if queue is not None else "no pod of it starts"
        return QueueReady(False, Reason.QUEUE_UNREADABLE, f"{fault}; correct the spec: until then {kept}")
    assert queue is not None
    if queue.stop_policy is StopPolicy.HOLD:
        return QueueReady(False, Reason.HELD, "stopPolicy Hold: nothing new starts, and what runs stays")
    if queue.stop_policy is StopPolicy.HOLD_AND_DRAIN:
        return QueueReady(
            False, Reason.DRAINING, "stopPolicy HoldAndDrain: nothing new starts, and what runs is evicted"
        )
    over = exceeded(usage.used, queue.capability)
    if over:
        return QueueReady(
            False,
            Reason.OVER_CAPABILITY,
            f"it uses {', '.join(over)} at most: nothing new starts until it uses less",
        )
    return QueueReady(True, Reason.ACTIVE, "new pods start as long as the capability is not used up")
