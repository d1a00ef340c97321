"""Reads what a pod asks for, in the resource names that users already write, into a PodRequest.

Enters: each container's amounts as text, the pod's annotations, the memory factors. Leaves: a PodRequest, None (no
GPUs asked for), or a Refusal that names the container, the resource, the value and what would be right. A preset
is a row of PRESETS; no rule here knows a resource name. Units: MiB per card, core percent per card.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from vgpu import names
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.request import CardRequest, ContainerKind, ContainerRequest, PodRequest
from vgpu.core.selection import read_selection
from vgpu.errors import MalformedObject
from vgpu.units import CORES_PER_CARD, parse_count, parse_whole

MAX_CARD_MEMORY_MIB: Final = 2**24
"""16 TiB: no card is near it, so a larger amount was written in bytes ("8Gi" reads as 8589934592)."""


@dataclass(frozen=True, slots=True)
class Preset:
    """One family of resource names and the two points where the families differ in meaning."""

    name: str
    number: str
    memory: str
    memory_percent: str
    cores: str
    percent_wins: bool
    """With memory and percentage given: the percentage counts (Volcano) or the memory does (HAMi)."""
    use_type_hides_nouse: bool
    priority: str | None = None
    """Only passed to HAMi-core inside the container: any whole number is taken, placement does not look at it."""

    @property
    def amounts(self) -> tuple[str, str, str, str]:
        """The resource names whose amounts say that a container wants GPUs."""
        return (self.number, self.memory, self.memory_percent, self.cores)


VOLCANO: Final = Preset(
    name="volcano",
    number=names.VOLCANO_NUMBER,
    memory=names.VOLCANO_MEMORY,
    memory_percent=names.VOLCANO_MEMORY_PERCENT,
    cores=names.VOLCANO_CORES,
    percent_wins=True,
    use_type_hides_nouse=True,
)
HAMI: Final = Preset(
    name="hami",
    number=names.HAMI_NUMBER,
    memory=names.HAMI_MEMORY,
    memory_percent=names.HAMI_MEMORY_PERCENT,
    cores=names.HAMI_CORES,
    percent_wins=False,
    use_type_hides_nouse=False,
    priority=names.HAMI_PRIORITY,
)
PRESETS: Final = (VOLCANO, HAMI)


@dataclass(frozen=True, slots=True)
class ContainerAmounts:
    """One container as its pod's spec states it: `amounts` is limits merged over requests, quantities as text."""

    name: str
    kind: ContainerKind
    amounts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PresetSettings:
    """MiB per unit of each preset's memory resource."""

    volcano_memory_factor: int = 1
    hami_memory_factor: int = 1

    def memory_factor(self, preset: Preset) -> int:
        """MiB per unit of `preset.memory`."""
        return {VOLCANO.name: self.volcano_memory_factor, HAMI.name: self.hami_memory_factor}[preset.name]


def read_request(
    containers: Sequence[ContainerAmounts], annotations: Mapping[str, str], settings: PresetSettings
) -> PodRequest | Refusal | None:
    """A pod's request by the rules of architecture.md 3; None when no amount of ours is above 0.

    `containers` in spec order, init containers first. Never raises for what a user wrote: reasons are
    InvalidRequest, NumberMissing and UnsupportedSelection.
    """
    asked: list[tuple[Preset, ContainerRequest]] = []
    for container in containers:
        read = _read_container(container, settings)
        if isinstance(read, Refusal):
            return read
        asked += read
    if not asked:
        return None
    (preset, first), *others = asked
    for other, request in others:
        if other is not preset:
            return _mixed(first, preset, request, other)
    selected = read_selection(annotations, use_type_hides_nouse=preset.use_type_hides_nouse)
    if isinstance(selected, Refusal):
        return selected
    requests = tuple(request for _, request in asked)
    return PodRequest(
        slot_resource=preset.number,
        containers=requests,
        sidecars_before=_sidecars_before(requests),
        selection=selected.selection,
        node_policy=selected.node_policy,
        card_policies=selected.card_policies,
    )


def _read_container(
    container: ContainerAmounts, settings: PresetSettings
) -> list[tuple[Preset, ContainerRequest]] | Refusal:
    """What one container asks of each preset; more than one entry is a mixture that the caller refuses."""
    found: list[tuple[Preset, ContainerRequest]] = []
    for preset in PRESETS:
        counts = _counts(container, preset)
        if isinstance(counts, Refusal):
            return counts
        request = _interpret(container, preset, counts, settings.memory_factor(preset))
        if isinstance(request, Refusal):
            return request
        if request is not None:
            found.append((preset, request))
    return found


def _counts(container: ContainerAmounts, preset: Preset) -> dict[str, int] | Refusal:
    """The preset's amounts as whole numbers, 0 for those not given."""
    counts = dict.fromkeys(preset.amounts, 0)
    for resource in (*preset.amounts, preset.priority):
        if resource is None or resource not in container.amounts:
            continue
        text = container.amounts[resource]
        try:
            if resource == preset.priority:
                parse_whole(text)
            else:
                counts[resource] = parse_count(text)
        except MalformedObject as error:
            return _invalid(container, resource, f"{error}; write a whole number{_meaning(preset, resource)}")
    return counts


def _meaning(preset: Preset, resource: str) -> str:
    return {
        preset.number: " of cards",
        preset.memory: ", the memory of each card (0 = unset)",
        preset.memory_percent: " from 1 to 100, the percent of each card's memory (0 = unset)",
        preset.cores: " from 1 to 100, the cores of each card (0 = unset)",
    }.get(resource, "")


def _interpret(
    container: ContainerAmounts, preset: Preset, counts: Mapping[str, int], memory_factor: int
) -> ContainerRequest | Refusal | None:
    number, memory, percent, cores = (counts[resource] for resource in preset.amounts)
    for resource, amount in ((preset.memory_percent, percent), (preset.cores, cores)):
        if amount > 100:
            wanted = "it is per card, write 1 to 100 (0 = unset)"
            return _invalid(container, resource, f"{amount} is more than 100 percent: {wanted}")
    memory_mib = memory * memory_factor
    if memory_mib > MAX_CARD_MEMORY_MIB:
        wanted = f"it counts units of {memory_factor} MiB, without suffix: 8 GiB are {8192 // memory_factor}"
        return _invalid(container, preset.memory, f"{memory} is more than any card has: {wanted}")
    if number == 0:
        return _number_missing(container, preset, counts)
    use_percent = percent > 0 and (preset.percent_wins or memory_mib == 0)
    card = CardRequest(
        memory_mib=memory_mib if memory_mib and not use_percent else None,
        memory_percent=percent if use_percent else None,
        cores=min(cores, CORES_PER_CARD),
    )
    return ContainerRequest(container.name, container.kind, number, card)


def _number_missing(container: ContainerAmounts, preset: Preset, counts: Mapping[str, int]) -> Refusal | None:
    """kubelet calls Allocate for the number resource only: without it the container would see every card."""
    given = {resource: counts[resource] for resource in preset.amounts if counts[resource]}
    if not given:
        return None
    help_text = f"add {preset.number}, 1 or more"
    for other in PRESETS:
        if other is not preset and other.number in container.amounts:
            pairs = zip(preset.amounts, other.amounts, strict=True)
            meant = ", ".join(name for resource, name in pairs if resource in given)
            help_text = f"beside {other.number} write {meant}"
    amounts = ", ".join(f"{resource} {amount}" for resource, amount in given.items())
    message = f"container {container.name}: {amounts} without {preset.number}: {help_text}"
    return Refusal(Reason.NUMBER_MISSING, message)


def _invalid(container: ContainerAmounts, resource: str, problem: str) -> Refusal:
    return Refusal(Reason.INVALID_REQUEST, f"container {container.name}: {resource}: {problem}")


def _mixed(first: ContainerRequest, preset: Preset, second: ContainerRequest, other: Preset) -> Refusal:
    message = (
        f"container {first.name} asks for {preset.number} and container {second.name} for {other.number}: "
        "a node offers one of the two; use the same in the whole pod"
    )
    return Refusal(Reason.INVALID_REQUEST, message)


def _sidecars_before(requests: Sequence[ContainerRequest]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """For each plain init container with cards, the sidecars with cards that are declared before it."""
    running: tuple[str, ...] = ()
    steps: list[tuple[str, tuple[str, ...]]] = []
    for request in requests:
        if request.kind is ContainerKind.SIDECAR:
            running = (*running, request.name)
        elif request.kind is ContainerKind.INIT:
            steps.append((request.name, running))
    return tuple(steps)
