"""Builders of queues and workloads for tests of who may evict whom: name only what matters."""

from collections.abc import Iterable
from typing import Any

from vgpu.core.preempt.eligible import Standing, standing_of
from vgpu.core.preempt.facts import UNSTATED, Amounts, Gang, Limits, QueueFact, Workload
from vgpu.core.terms import OwnerRef

CARD_MIB = 32_768
NOW = 100_000
"""Long after everything that a test does not date otherwise."""


def cards(count: float) -> Amounts:
    """So many whole cards of the acceptance table's node, or shares of one."""
    return Amounts(int(count * 1000), int(count * CARD_MIB), int(count * 100))


def limit(count: float) -> Limits:
    """A limit on cards alone."""
    return Limits(cards_thousandths=int(count * 1000))


def make_queue(name: str = "q", deserved: float | Limits = UNSTATED, **fields: Any) -> QueueFact:
    """A queue that deserves so many cards, or what the limits say."""
    return QueueFact(name, deserved=deserved if isinstance(deserved, Limits) else limit(deserved), **fields)


def make_workload(uid: str, queue: str = "q", size: float = 1, **fields: Any) -> Workload:
    """A pod of a ReplicaSet that waits for `size` cards."""
    given = {
        "namespace": "team",
        "name": uid,
        "priority": 0,
        "amounts": cards(size),
        "claim": cards(size),
        "created_seconds": 0,
        "owner": OwnerRef(f"rs-{uid}", "ReplicaSet", f"rs-{uid}"),
        **fields,
    }
    return Workload(uid, queue=queue, **given)


def running(uid: str, queue: str = "q", size: float = 1, **fields: Any) -> Workload:
    """The same, on a node since long ago."""
    return make_workload(uid, queue, size, **{"running": True, "node": "n1", "started_seconds": 0, **fields})


def make_gang(key: str, members: int, minimum: int, queue: str = "q", **fields: Any) -> list[Workload]:
    """A gang's pods `key`-0, `key`-1 and so on, that run unless told otherwise."""
    gang = Gang(key, minimum, fields.pop("disruption_all", False))
    return [running(f"{key}-{i}", queue, **{"gang": gang, "created_seconds": i, **fields}) for i in range(members)]


def stand(queues: Iterable[QueueFact], *workloads: Workload, promised: Iterable[str] = ()) -> Standing:
    """How these queues stand with these workloads."""
    return standing_of({queue.name: queue for queue in queues}, workloads, promised)
