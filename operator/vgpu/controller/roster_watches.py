"""What the roster knows beside pods and cards: queues, namespaces, budgets, groups, classes, each from its watch.

Enters: facts and deletions of these kinds. Leaves: calls of the roster, and word to those who act on it. May not
live here: decoding, decisions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from vgpu import names
from vgpu.controller.group_sink import GroupSink
from vgpu.controller.optional_watch import OptionalKind, OptionalWatch
from vgpu.controller.sinks import Quarantine
from vgpu.controller.translate.budget import decode_budget
from vgpu.controller.translate.group import decode_kubernetes_group, decode_volcano_group
from vgpu.controller.translate.namespace import (
    ClassFact,
    DefinitionFact,
    NamespaceFact,
    decode_class,
    decode_definition,
    decode_namespace,
)
from vgpu.controller.translate.queue import SeenQueue, decode_queue
from vgpu.core.preempt.budget_book import BudgetFact
from vgpu.core.preempt.roster import Roster
from vgpu.core.terms import GroupSource
from vgpu.kube.client import ApiClient
from vgpu.kube.objects import Decoded, Key
from vgpu.kube.reflector import Reflector, ReflectorSpec, Sink
from vgpu.settings import OperatorSettings

FactT = TypeVar("FactT")
Told = Callable[[], None]
NO_PARAMS: Mapping[str, str] = {}
VOLCANO_GROUP = "scheduling.volcano.sh"
KUBERNETES_GROUP = "scheduling.k8s.io"
POD_GROUPS = "podgroups"
VOLCANO_VERSIONS = ("v1beta1",)
KUBERNETES_VERSIONS = ("v1", "v1beta1", "v1alpha3", "v1alpha2")
PATHS = {
    "queues": f"/apis/{names.API_VERSION}/{names.QUEUE_PLURAL}",
    "namespaces": "/api/v1/namespaces",
    "disruption budgets": "/apis/policy/v1/poddisruptionbudgets",
    "priority classes": f"/apis/{KUBERNETES_GROUP}/v1/priorityclasses",
    "pod group definition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
}


class QueueListener(Protocol):
    """Who is told of every queue that is seen; the publisher of their status."""

    def saw(self, queue: SeenQueue) -> None:
        """The watch shows this queue, after the roster has it."""

    def gone(self, name: str) -> None:
        """The queue was deleted."""


@dataclass(frozen=True, slots=True)
class RosterParts:
    """What the watches work with."""

    client: ApiClient
    settings: OperatorSettings
    roster: Roster
    publisher: QueueListener


class QueueSink(Quarantine):
    """Queues into the roster, their status to the publisher. One that cannot be read keeps its last good fact."""

    kind = names.QUEUE_KIND

    def __init__(self, roster: Roster, publisher: QueueListener, told: Told) -> None:
        super().__init__()
        self._roster = roster
        self._publisher = publisher
        self._told_of = told

    def put(self, item: SeenQueue) -> None:
        """A queue is there, like this."""
        key = Key("", item.name, "")
        if item.fact is None:
            self.malformed(key, item.fault)
        else:
            self.readable(key)
            if self._roster.queues.get(item.name) != item.fact:
                self._roster.put_queue(item.fact)
                self._told_of()
        self._publisher.saw(item)

    def drop(self, key: Key) -> None:
        """A queue is gone."""
        self.readable(Key("", key.name, ""))
        self._roster.drop_queue(key.name)
        self._publisher.gone(key.name)
        self._told_of()


class NamespaceSink(Quarantine):
    """Which queue each namespace names."""

    kind = "Namespace"

    def __init__(self, roster: Roster, told: Told) -> None:
        super().__init__()
        self._roster = roster
        self._told_of = told

    def put(self, item: NamespaceFact) -> None:
        """A namespace is there, like this."""
        if self._roster.put_namespace(item.name, item.queue):
            self._told_of()

    def drop(self, key: Key) -> None:
        """A namespace is gone."""
        self.readable(key)
        self._roster.drop_namespace(key.name)

    def synced(self) -> None:
        """Every namespace has been seen."""
        self._roster.namespaces_known()


class BudgetSink(Quarantine):
    """PodDisruptionBudgets. One that cannot be read keeps its last good fact."""

    kind = "PodDisruptionBudget"

    def __init__(self, roster: Roster, told: Told) -> None:
        super().__init__()
        self._roster = roster
        self._told_of = told

    def put(self, item: BudgetFact) -> None:
        """A budget is there, like this."""
        if self._roster.put_budget(item):
            self._told_of()

    def drop(self, key: Key) -> None:
        """A budget is gone."""
        self.readable(key)
        self._roster.drop_budget(f"{key.namespace}/{key.name}")
        self._told_of()


class ClassSink(Quarantine):
    """PriorityClasses: a Volcano PodGroup names one."""

    kind = "PriorityClass"

    def __init__(self, roster: Roster) -> None:
        super().__init__()
        self._roster = roster

    def put(self, item: ClassFact) -> None:
        """A class is there, like this."""
        self._roster.put_class(item.name, item.priority)

    def drop(self, key: Key) -> None:
        """A class is gone."""
        self.readable(key)
        self._roster.put_class(key.name, None)


class DefinitionSink(Quarantine):
    """The definition of a kind comes, changes or goes."""

    kind = "CustomResourceDefinition"

    def __init__(self, watch: OptionalWatch) -> None:
        super().__init__()
        self._watch = watch

    def put(self, item: DefinitionFact) -> None:
        """The definition is there, like this."""
        self._watch.define(defined=item.established)

    def drop(self, key: Key) -> None:
        """The definition is gone."""
        self.readable(key)
        self._watch.define(defined=False)

    def synced(self) -> None:
        """Every definition has been seen."""
        self._watch.definitions_listed()


class RosterWatches:
    """All watches of this file. `told` is called after anything changed that pods' queues, ranks or rights rest
    on."""

    def __init__(self, parts: RosterParts, told: Told) -> None:
        self._parts = parts
        roster = parts.roster
        self._volcano = self._optional(GroupSource.VOLCANO, told)
        self._kubernetes = self._optional(GroupSource.KUBERNETES, told)
        definition = {"fieldSelector": f"metadata.name={POD_GROUPS}.{VOLCANO_GROUP}"}
        self.reflectors: dict[str, Reflector[Any]] = {
            "queues": self._reflector("queues", decode_queue, QueueSink(roster, parts.publisher, told)),
            "namespaces": self._reflector("namespaces", decode_namespace, NamespaceSink(roster, told)),
            "disruption budgets": self._reflector("disruption budgets", decode_budget, BudgetSink(roster, told)),
            "priority classes": self._reflector("priority classes", decode_class, ClassSink(roster)),
            "pod group definition": self._reflector(
                "pod group definition", decode_definition, DefinitionSink(self._volcano), definition
            ),
        }

    @property
    def optional(self) -> dict[str, OptionalWatch]:
        """Watches of kinds that need not be there, by name; each is to be run."""
        return {"Volcano's pod groups": self._volcano, "pod groups": self._kubernetes}

    @property
    def running(self) -> dict[str, Reflector[Any]]:
        """Every watch that runs now."""
        found = {name: watch.reflector for name, watch in self.optional.items()}
        return {**self.reflectors, **{name: one for name, one in found.items() if one is not None}}

    def start_over(self) -> None:
        """This process has begun to lead: an API server may serve more, or less, than at our start."""
        for watch in self.optional.values():
            watch.look()

    def _reflector(
        self,
        kind: str,
        decode: Callable[[bytes], Decoded[FactT]],
        sink: Sink[FactT],
        params: Mapping[str, str] = NO_PARAMS,
    ) -> Reflector[FactT]:
        return self._reflect(PATHS[kind], decode, sink, params)

    def _reflect(
        self, path: str, decode: Callable[[bytes], Decoded[FactT]], sink: Sink[FactT], params: Mapping[str, str]
    ) -> Reflector[FactT]:
        settings = self._parts.settings
        spec = ReflectorSpec(
            path, params, page_size=settings.list_page_size, silence_seconds=settings.watch_silence_seconds
        )
        return Reflector(self._parts.client, spec, decode, sink)

    def _optional(self, source: GroupSource, told: Told) -> OptionalWatch:
        volcano = source is GroupSource.VOLCANO
        sink = GroupSink(source, self._parts.roster, told)
        decode = decode_volcano_group if volcano else decode_kubernetes_group
        kind = OptionalKind(
            VOLCANO_GROUP if volcano else KUBERNETES_GROUP,
            POD_GROUPS,
            VOLCANO_VERSIONS if volcano else KUBERNETES_VERSIONS,
            reflect=lambda path: self._reflect(path, decode, sink, NO_PARAMS),
            forget=sink.forget,
            served=sink.served,
        )
        return OptionalWatch(self._parts.client, kind, defined=False if volcano else None)
