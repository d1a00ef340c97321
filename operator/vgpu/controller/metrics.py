"""Metrics in a registry of our own. Counters are raised where things happen; all else is read at the scrape.

Enters: counts from the extender and the writer, a Snapshot of the ledger taken in the event loop. Leaves:
Prometheus text. Series of cards come from the cards that exist at the scrape, so none of a card or node that is
gone can stay behind. May not live here: HTTP, decisions.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from vgpu.controller.card_metrics import CardMetrics
from vgpu.controller.guard import unexpected_errors
from vgpu.controller.preempt_metrics import IDLE, PreemptionMetrics, PreemptionState, state_families
from vgpu.core.views import NodeView

LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 9)


class WatchState(Protocol):
    """What is shown of one reflector."""

    synced: bool
    connected: bool
    relists: int
    last_event_monotonic: float
    problem: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a scrape shows, taken at one moment in the event loop and rendered outside it."""

    views: tuple[NodeView, ...]
    pending: Mapping[str, int]
    writes: Mapping[tuple[str, str, str], int]
    watches: Mapping[str, "WatchRow"]
    version: int
    recounts: int
    leading: bool
    serving: bool
    queues: int = 0
    preemption: PreemptionState = IDLE


@dataclass(frozen=True, slots=True)
class WatchRow:
    """One watch: seconds since the server last said anything, and whether it is whole."""

    age_seconds: float
    relists: int
    connected: bool
    synced: bool
    problem: str = ""


def watch_row(state: WatchState, now: float) -> WatchRow:
    """The row of `state` at `now` (seconds of the monotonic clock)."""
    age = max(0.0, now - state.last_event_monotonic) if state.last_event_monotonic else 0.0
    return WatchRow(age, state.relists, state.connected, state.synced, state.problem)


class Metrics:
    """The operator's own registry."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._cards = CardMetrics()
        self._rendering = Lock()
        self.preemption = PreemptionMetrics(self._registry)
        self.extender_seconds = Histogram(
            "vgpu_extender_seconds",
            "Time to answer kube-scheduler",
            ["verb"],
            buckets=LATENCY_BUCKETS,
            registry=self._registry,
        )

    def observe(self, verb: str, seconds: float) -> None:
        """One answer of the extender."""
        self.extender_seconds.labels(verb).observe(seconds)

    def render(self, snapshot: Snapshot) -> bytes:
        """The text of one scrape. Touches nothing of the event loop's, so it may run in another thread."""
        shown = CollectorRegistry()
        shown.register(_SnapshotCollector(snapshot))
        with self._rendering:
            cards = self._cards.render(snapshot.views)
        return generate_latest(self._registry) + generate_latest(shown) + cards


class _SnapshotCollector(Collector):
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        yield from _watches(self._snapshot.watches)
        pending = GaugeMetricFamily("vgpu_pending_pods", "GPU pods that wait, by reason", labels=["reason"])
        for reason, count in sorted(self._snapshot.pending.items()):
            pending.add_metric([reason], count)
        writes = CounterMetricFamily(
            "vgpu_writes", "Writes to the API server", labels=["verb", "resource", "code"]
        )
        for (verb, resource, code), count in sorted(self._snapshot.writes.items()):
            writes.add_metric([verb, resource, code], count)
        unexpected = CounterMetricFamily(
            "vgpu_unexpected_errors", "Exceptions about one object that nobody foresaw", labels=["part"]
        )
        for part, count in sorted(unexpected_errors.copy().items()):
            unexpected.add_metric([part], count)
        yield from (pending, writes, unexpected)
        yield CounterMetricFamily("vgpu_recounts", "Node views recomputed", value=self._snapshot.recounts)
        yield GaugeMetricFamily("vgpu_ledger_version", "Changes of the ledger", value=self._snapshot.version)
        yield GaugeMetricFamily("vgpu_leader", "1 while this replica leads", value=int(self._snapshot.leading))
        serving = "1 while this replica answers kube-scheduler"
        yield GaugeMetricFamily("vgpu_serving", serving, value=int(self._snapshot.serving))
        yield GaugeMetricFamily("vgpu_queues", "GpuQueues that exist", value=self._snapshot.queues)
        yield from state_families(self._snapshot.preemption)


def _watches(rows: Mapping[str, WatchRow]) -> Iterator[Metric]:
    age = GaugeMetricFamily("vgpu_watch_age_seconds", "Since the server last said anything", labels=["kind"])
    connected = GaugeMetricFamily("vgpu_watch_connected", "1 while the stream is open", labels=["kind"])
    relists = CounterMetricFamily("vgpu_watch_relists", "Whole lists read", labels=["kind"])
    for kind, row in sorted(rows.items()):
        age.add_metric([kind], row.age_seconds)
        connected.add_metric([kind], int(row.connected))
        relists.add_metric([kind], row.relists)
    yield from (age, connected, relists)
