"""The pods of this node, as the agent's own watch shows them.

Enters: raw Pods. Leaves: PodSeen, by name and by uid, and a signal for each change. What a pod's cards mean is
decided where they are granted.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from vgpu import names
from vgpu.agent.identity.matching import SlotContainer
from vgpu.api.model import read_json
from vgpu.core.request import ContainerKind
from vgpu.errors import MalformedObject
from vgpu.kube.objects import Decoded, Key
from vgpu.units import parse_count

ENDED = ("Succeeded", "Failed")
CONTROL_SWITCH = "CUDA_DISABLE_CONTROL"


@dataclass(frozen=True, slots=True)
class ContainerSeen:
    """A container that asks for slots; `control_switch` is what it sets CUDA_DISABLE_CONTROL to."""

    slots: SlotContainer
    control_switch: str = ""
    priority: str = ""


@dataclass(frozen=True, slots=True)
class PodSeen:
    """`accepted`: kubelet has admitted it (status.startTime). `started`: a container of it runs or ran.

    `assignment`: the annotation's text, "" if absent.

    `containers` in spec order, init first, only those that ask for slots; `problem` says why they cannot be read.
    """

    namespace: str
    name: str
    uid: str
    node: str
    accepted: bool
    ended: bool
    assignment: str
    started: bool = False
    containers: tuple[ContainerSeen, ...] = ()
    problem: str = ""

    @property
    def path(self) -> str:
        """As people write it."""
        return f"{self.namespace}/{self.name}"


class PodWatch:
    """A reflector's sink. `change` is set at the next change; ask for it before looking."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], PodSeen] = {}
        self.is_synced = False
        self.change = asyncio.Event()

    @property
    def pods(self) -> Mapping[tuple[str, str], PodSeen]:
        """(namespace, name) -> the pod as it is seen now; later changes do not show in it."""
        return dict(self._by_name)

    @property
    def uids(self) -> frozenset[str]:
        """Of all pods that exist on the node."""
        return frozenset(pod.uid for pod in self._by_name.values())

    def put(self, item: PodSeen) -> None:
        """This pod is there now, like this."""
        self._by_name[item.namespace, item.name] = item
        self._changed()

    def drop(self, key: Key) -> None:
        """This pod is gone."""
        pod = self._by_name.get((key.namespace, key.name))
        if pod is not None and pod.uid == key.uid:
            del self._by_name[key.namespace, key.name]
            self._changed()

    def malformed(self, key: Key, message: str) -> None:
        """This pod is there and cannot be read."""
        if key.uid:
            self.put(PodSeen(key.namespace, key.name, key.uid, "", False, False, "", problem=message))

    def synced(self) -> None:
        """The list is complete."""
        self.is_synced = True
        self._changed()

    def _changed(self) -> None:
        self.change.set()
        self.change = asyncio.Event()


class _Part(BaseModel):
    model_config = ConfigDict(
        extra="ignore", alias_generator=to_camel, validate_by_name=True, coerce_numbers_to_str=True
    )


class _Metadata(_Part):
    name: str
    namespace: str
    uid: str
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Variable(_Part):
    name: str
    value: str | None = None


class _Resources(_Part):
    limits: dict[str, str] | None = None


class _Container(_Part):
    name: str
    restart_policy: str | None = None
    resources: _Resources | None = None
    env: list[_Variable] | None = None


class _Spec(_Part):
    node_name: str = ""
    init_containers: list[_Container] | None = None
    containers: list[_Container] = Field(default_factory=list)


class _State(_Part):
    running: Any = None
    terminated: Any = None


class _ContainerStatus(_Part):
    state: _State | None = None
    restart_count: int = 0

    @property
    def runs_or_ran(self) -> bool:
        state = self.state or _State()
        return state.running is not None or state.terminated is not None or self.restart_count > 0


class _Status(_Part):
    phase: str = ""
    start_time: Any = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None

    @property
    def all_containers(self) -> list[_ContainerStatus]:
        return [*(self.init_container_statuses or ()), *(self.container_statuses or ())]


class _Pod(_Part):
    metadata: _Metadata
    spec: _Spec
    status: _Status = _Status()


class PodDecoder:
    """Reads Pods on a node that advertises `resource` as its slots."""

    def __init__(self, resource: str) -> None:
        self._resource = resource

    def __call__(self, raw: bytes) -> Decoded[PodSeen]:
        """Raises MalformedObject for what is no Pod."""
        pod = read_json(_Pod, raw, "Pod")
        head = pod.metadata
        try:
            containers, problem = self._containers(pod.spec), ""
        except MalformedObject as error:
            containers, problem = (), str(error)
        seen = PodSeen(
            namespace=head.namespace,
            name=head.name,
            uid=head.uid,
            node=pod.spec.node_name,
            accepted=pod.status.start_time is not None,
            ended=pod.status.phase in ENDED,
            started=any(status.runs_or_ran for status in pod.status.all_containers),
            assignment=(head.annotations or {}).get(names.ASSIGNMENT_ANNOTATION, ""),
            containers=containers,
            problem=problem,
        )
        return Decoded(Key(head.namespace, head.name, head.uid), head.resource_version, seen)

    def _containers(self, spec: _Spec) -> tuple[ContainerSeen, ...]:
        init = [(container, _init_kind(container)) for container in spec.init_containers or ()]
        app = [(container, ContainerKind.APP) for container in spec.containers]
        seen = (self._container(container, kind) for container, kind in (*init, *app))
        return tuple(container for container in seen if container.slots.number)

    def _container(self, container: _Container, kind: ContainerKind) -> ContainerSeen:
        limits = (container.resources and container.resources.limits) or {}
        number = parse_count(limits.get(self._resource, "0"))
        switch = next((v.value or "" for v in container.env or () if v.name == CONTROL_SWITCH), "")
        slots = SlotContainer(container.name, kind, number)
        return ContainerSeen(slots, switch, limits.get(names.HAMI_PRIORITY, ""))


def _init_kind(container: _Container) -> ContainerKind:
    return ContainerKind.SIDECAR if container.restart_policy == "Always" else ContainerKind.INIT
