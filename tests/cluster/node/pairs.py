"""Pods in pairs of equal card counts, created as fast as the node's gate lets them in.

Enters: the stage, how many pairs. Leaves: pods that run, each of which printed what it found. Equal counts at the
same moment are what a plugin that guesses mixes up; no two pods ask for the same amounts, so that none can get
another's cards unnoticed.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial

from devcluster.waiting import wait_until
from tests.cluster.node.stage import CARDS, LOOK_SECONDS, Json, NodeStage, busybox_pod
from tests.cluster.node.witness import LOOK
from vgpu import names

PAIRS = 25
COUNTS = (1, 2, 1, 3, 1, 4, 2, CARDS)
FIRST_MEMORY_MIB = 100
UNADMITTED_LIMIT = 16
"""As many pods may be bound and not admitted (setting unadmitted_limit)."""
STAYS = f"{LOOK}; exec sleep 2147483647"


def pairs(first: int, count: int = PAIRS) -> Iterator[tuple[Json, Json]]:
    """`count` pairs, numbered from `first` on."""
    for number in range(first, first + count):
        yield _pod(number, "a"), _pod(number, "b")


def run_pairs(
    stage: NodeStage, wanted: Sequence[tuple[Json, Json]], timeout_seconds: float = 180
) -> dict[str, Json]:
    """Create them and wait until all of them run; hands back the pods as they then are."""
    made: set[str] = set()

    def admitted(more: int) -> bool:
        pods = stage.items()
        waiting = [name for name in made if not pods[name]["status"].get("startTime")]
        return len(waiting) + more <= UNADMITTED_LIMIT

    for pair in wanted:
        wait_until(partial(admitted, len(pair)), "kubelet to admit pods", 60, LOOK_SECONDS)
        stage.create(*pair)
        made |= {pod["metadata"]["name"] for pod in pair}
    stage.wait_running(*sorted(made), timeout_seconds=timeout_seconds)
    pods = stage.items()
    return {name: pods[name] for name in made}


def bound_together(stage: NodeStage, wanted: Sequence[tuple[Json, Json]], since: int) -> int:
    """How many pairs were bound within one second, by the API server's audit log."""
    bound = {
        event.name: datetime.fromisoformat(event.received_at)
        for event in stage.cluster.audit_events(since).events
        if (event.verb, event.resource, event.subresource, event.code) == ("create", "pods", "binding", 201)
    }
    apart = [abs(bound[a["metadata"]["name"]] - bound[b["metadata"]["name"]]) for a, b in wanted]
    return sum(difference.total_seconds() < 1 for difference in apart)


def _pod(number: int, which: str) -> Json:
    own = 2 * number + (which == "b")
    limits = {
        names.VOLCANO_NUMBER: str(COUNTS[number % len(COUNTS)]),
        names.VOLCANO_MEMORY: str(FIRST_MEMORY_MIB + own),
        names.VOLCANO_CORES: "1",
    }
    return busybox_pod(f"pair-{number}-{which}", command=["sh", "-c", STAYS], limits=limits)
