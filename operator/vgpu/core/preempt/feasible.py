"""Would kube-scheduler let this pod onto this node once others have left it? What cards do not tell (S28).

Enter: the node's fact, what all its pods ask for, the pod, who leaves and who comes beside it. Leaves: "" or the
first obstacle in words. Nobody is to be evicted on a node that would refuse the preemptor all the same; what is
free of CPU, memory and pods is checked, not held (preemption.md 4.7).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from vgpu.core.facts import NodeFact, Scheduling
from vgpu.core.intree import obstacle


@dataclass(frozen=True, slots=True)
class NodeUse:
    """What the pods on a node ask for together, with or without GPUs, leaving ones included."""

    cpu_millicores: int = 0
    memory_mib: int = 0
    pods: int = 0

    def plus(self, pods: Iterable[Scheduling], times: int = 1) -> "NodeUse":
        """With these pods; `times` -1 = without them."""
        listed = tuple(pods)
        return NodeUse(
            self.cpu_millicores + times * sum(pod.cpu_millicores for pod in listed),
            self.memory_mib + times * sum(pod.memory_mib for pod in listed),
            self.pods + times * len(listed),
        )


def obstacle_after(
    node: NodeFact,
    use: NodeUse,
    pod: Scheduling,
    released: Iterable[Scheduling] = (),
    beside: Iterable[Scheduling] = (),
) -> str:
    """What keeps the pod off the node when `released` are gone and `beside` (others of its gang) have come, or "".

    Rules of kube-scheduler's NodeResourcesFit: an amount that the pod does not ask for is never short.
    """
    lasting = obstacle(node, pod)
    if lasting:
        return lasting
    left = use.plus(released, -1).plus(beside)
    short = [
        f"{wanted} {what} wanted, {max(0, offered - used)} free"
        for what, wanted, used, offered in (
            ("CPU millicores", pod.cpu_millicores, left.cpu_millicores, node.cpu_millicores),
            ("MiB of memory", pod.memory_mib, left.memory_mib, node.memory_mib),
            ("pod", 1, left.pods, node.pods),
        )
        if wanted and used + wanted > offered
    ]
    return f"even without the victims: {', '.join(short)}" if short else ""
