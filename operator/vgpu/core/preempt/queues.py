"""Which queue a pod belongs to, and whether the queue takes it (preemption.md 4.1).

Enters: labels, annotations, QueueFacts, amounts. Leaves: a queue's name, the QueueFact, or a Refusal. May not live
here: who evicts whom.
"""

from collections.abc import Mapping

from vgpu import names
from vgpu.core.preempt.facts import Amounts, QueueFact, StopPolicy
from vgpu.core.preempt.limits import exceeded, short_of, where_given
from vgpu.core.preempt.usage import QueueUsage
from vgpu.core.reasons import Reason, Refusal

DEFAULT_QUEUE = "default"


def named_queue(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """The queue that the pod itself names by label or annotation, "" for none."""
    for key in names.QUEUE_KEYS:
        for source in (labels, annotations):
            if source.get(key):
                return source[key]
    return ""


def queue_name(
    labels: Mapping[str, str], annotations: Mapping[str, str], namespace_labels: Mapping[str, str]
) -> str:
    """The queue that the pod names by label or annotation, else its namespace's, else the default one."""
    return named_queue(labels, annotations) or namespace_labels.get(names.POLICY_QUEUE) or DEFAULT_QUEUE


def find_queue(name: str, queues: Mapping[str, QueueFact]) -> QueueFact | Refusal:
    """The queue of this name, or QueueNotFound."""
    found = queues.get(name)
    if found is not None:
        return found
    known = ", ".join(sorted(queues)[:5]) or "none"
    return Refusal(
        Reason.QUEUE_NOT_FOUND, f"there is no GpuQueue {name} (there is: {known}); create it or name another"
    )


def may_start(name: str, queues: Mapping[str, QueueFact], usage: QueueUsage, added: Amounts) -> Refusal | None:
    """Why the queue takes no workload of `added` now, or None: its stopPolicy, its capability."""
    queue = find_queue(name, queues)
    if isinstance(queue, Refusal):
        return queue
    return stopped(queue) or over_capability(queue, usage.after(added), added)


def stopped(queue: QueueFact) -> Refusal | None:
    """Why nothing new starts in the queue, or None."""
    if queue.stop_policy is StopPolicy.NONE:
        return None
    return Refusal(
        Reason.QUEUE_STOPPED, f"queue {queue.name} is on {queue.stop_policy}; set its stopPolicy to None to go on"
    )


def over_capability(queue: QueueFact, used: Amounts, added: Amounts) -> Refusal | None:
    """Why the queue may not use so much, or None. Only what `added` has some of counts: a cap that was lowered
    under what runs refuses nothing else."""
    over = exceeded(used, where_given(queue.capability, added))
    if not over:
        return None
    alone = exceeded(added, queue.capability)
    if alone:
        said = f"asks for {', '.join(alone)} that queue {queue.name} may use at most"
        return Refusal(Reason.QUEUE_CAPABILITY, f"{said}; ask for less or raise its capability")
    return Refusal(
        Reason.QUEUE_CAPABILITY,
        f"queue {queue.name} would use {', '.join(over)} at most; wait for its other work or raise its capability",
    )


def under_guarantee(queue: QueueFact, used: Amounts, freed: Amounts) -> Refusal | None:
    """Why the queue may not lose `freed` so that only `used` stays, or None."""
    short = short_of(used, where_given(queue.guarantee, freed))
    if not short:
        return None
    return Refusal(
        Reason.QUEUE_GUARANTEE, f"queue {queue.name} would keep {', '.join(short)} that it is guaranteed"
    )
