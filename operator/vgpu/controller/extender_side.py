"""Opens the extender's server when this replica first leads, and tells who is to know what it answered.

Enters: the parts of the process that answer kube-scheduler. Leaves: a server over mTLS. Once open it stays, and
answers 503 while this replica does not lead. May not live here: any answer.
"""

from collections.abc import Callable
from dataclasses import dataclass

from vgpu.controller.binder import Binder
from vgpu.controller.certificates import server_context
from vgpu.controller.clock import SystemClock
from vgpu.controller.extender import Extender, ExtenderParts
from vgpu.controller.http_server import HttpServer, serve
from vgpu.controller.metrics import Metrics
from vgpu.controller.translate import Translator
from vgpu.controller.writer import Writer
from vgpu.core.facts import PodFact
from vgpu.core.filtering import FilterAnswer, NodeFilter
from vgpu.core.index import FitIndex
from vgpu.core.ledger import Ledger
from vgpu.core.reasons import Refusal
from vgpu.kube.client import ApiClient
from vgpu.settings import OperatorSettings

Answered = Callable[[PodFact, FilterAnswer], None]


@dataclass(frozen=True, slots=True)
class ExtenderSideParts:
    """What it works with. `barred`: why a pod may not start now although it fits; `refusal`: why nobody is
    answered here now; `before`: is told whom filter is about to answer; `answered`: who is told of each answer."""

    client: ApiClient
    settings: OperatorSettings
    ledger: Ledger
    index: FitIndex
    translator: Translator
    binder: Binder
    writer: Writer
    metrics: Metrics
    barred: Callable[[PodFact], Refusal | None]
    refusal: Callable[[], str]
    before: Callable[[PodFact], None]
    answered: tuple[Answered, ...]


class ExtenderSide:
    """See the module."""

    def __init__(self, parts: ExtenderSideParts) -> None:
        self._parts = parts
        self.server: HttpServer | None = None

    async def open(self) -> None:
        """Listen, unless it does already."""
        if self.server is not None:
            return
        parts, settings = self._parts, self._parts.settings
        extender = Extender(
            ExtenderParts(
                ledger=parts.ledger,
                index=parts.index,
                node_filter=NodeFilter(parts.index, parts.ledger, settings.filter_best_nodes, parts.barred),
                translator=parts.translator,
                binder=parts.binder,
                clock=SystemClock(),
                refusal=parts.refusal,
                before=parts.before,
                answered=self._answered,
                observe=parts.metrics.observe,
                deadline_seconds=settings.filter_deadline_seconds,
            )
        )
        tls = await server_context(parts.client, parts.writer, settings)
        address = settings.extender_host, settings.extender_port
        self.server = await serve(extender.application(), address, tls)

    def _answered(self, pod: PodFact, answer: FilterAnswer) -> None:
        for told in self._parts.answered:
            told(pod, answer)
