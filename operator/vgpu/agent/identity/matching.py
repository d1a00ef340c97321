"""Which Allocate answers belong to which container of a pod. Pure.

Enters: the log of answers, a pod's containers with slots in spec order, what kubelet's PodResources shows.
Leaves: nonce -> container name for the whole pod, or NoMatch with the reason. Never a guess: what is not certain
is NoMatch.

What it rests on (kubelet's device manager, tried on a real one): Allocate is called once per container, init
containers first, in spec order, one pod's calls in a row unless kubelet restarts, which leaves a gap in the
sequence; slots of app containers and sidecars belong to no other live container; slots of a plain init container
are handed out again, before fresh ones, to the later containers of its pod, and PodResources does not show them.

One exception: whoever lists PodResources makes kubelet count anew what is given out, and the slots of a pod whose
Allocate is under way are not in that count (pkg/kubelet/cm/devicemanager/manager.go, UpdateAllocatedDevices). They
may be given to a second pod then. Slots are anonymous, so that takes no card from anybody; the two are told apart
as long as they did not get just the same ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vgpu.core.request import ContainerKind

Ids = frozenset[str]


@dataclass(frozen=True, slots=True)
class Entry:
    """One container's Allocate answer. Entries with `sequence` n and n + 1 came one right after the other."""

    sequence: int
    nonce: str
    ids: Ids


@dataclass(frozen=True, slots=True)
class SlotContainer:
    """A container that asks for slots."""

    name: str
    kind: ContainerKind
    number: int


@dataclass(frozen=True, slots=True)
class NoMatch:
    """The answers cannot be told for certain."""

    message: str


@dataclass(frozen=True, slots=True)
class Shown:
    """What PodResources shows: `own` slots by container of the pod, `others` of all other pods, by container."""

    own: Mapping[str, Ids]
    others: Sequence[Ids] = ()

    def beside(self, ids: Ids) -> list[Ids]:
        """The slots of each container of another pod that has one of `ids` too."""
        return [other for other in self.others if other & ids]


def match_pod(
    entries: Sequence[Entry], containers: Sequence[SlotContainer], shown: Shown
) -> Mapping[str, str] | NoMatch:
    """nonce -> container name for every container of the pod. `entries` in the order of their sequence."""
    steady = _steady_entries(entries, containers, shown)
    if isinstance(steady, NoMatch):
        return steady
    run = _whole_run(entries, containers, steady)
    if isinstance(run, NoMatch):
        return run
    doubt = _doubt(entries, run, containers, shown)
    if doubt is not None:
        return doubt
    return {entry.nonce: container.name for entry, container in zip(run, containers, strict=True)}


def _steady_entries(
    entries: Sequence[Entry], containers: Sequence[SlotContainer], shown: Shown
) -> dict[int, Entry] | NoMatch:
    """Position in `containers` -> the latest answer that gave out its slots, for app containers and sidecars."""
    found: dict[int, Entry] = {}
    for position, container in enumerate(containers):
        if container.kind is ContainerKind.INIT:
            continue
        ids = shown.own.get(container.name, frozenset())
        if len(ids) != container.number:
            return NoMatch(f"kubelet shows {len(ids)} slots for {container.name}, which asks {container.number}")
        entry = _own_answer(entries, ids, shown)
        if entry is None:
            return NoMatch(
                f"the slots of container {container.name} are in no answer that this agent remembers; "
                "delete the pod"
            )
        found[position] = entry
    if not found:
        return NoMatch("only plain init containers ask for slots, and kubelet does not tell whose those are")
    return found


def _own_answer(entries: Sequence[Entry], ids: Ids, shown: Shown) -> Entry | None:
    """The latest answer that gave out exactly `ids`, if later ones with a part of them are known to be others'."""
    for entry in reversed(entries):
        if entry.ids == ids:
            return entry
        if entry.ids & ids and entry.ids not in shown.others:
            return None
    return None


def _whole_run(
    entries: Sequence[Entry], containers: Sequence[SlotContainer], steady: Mapping[int, Entry]
) -> Sequence[Entry] | NoMatch:
    """Adds the answers of plain init containers, which only the order of the calls tells."""
    if len(steady) == len(containers):
        return [steady[position] for position in range(len(containers))]
    first = {entry.sequence - position for position, entry in steady.items()}
    by_sequence = {entry.sequence: entry for entry in entries}
    run = [by_sequence.get(min(first) + position) for position in range(len(containers))]
    whole = [entry for entry in run if entry is not None]
    if len(first) > 1 or len(whole) < len(containers):
        return NoMatch("the answers for its containers did not come in a row; delete the pod")
    return whole


def _doubt(
    entries: Sequence[Entry], run: Sequence[Entry], containers: Sequence[SlotContainer], shown: Shown
) -> NoMatch | None:
    """Slots must be handed on inside the pod exactly as kubelet does it, and not be taken for another's."""
    reusable: Ids = frozenset()
    for entry, container in zip(run, containers, strict=True):
        if len(entry.ids) != container.number or not _told_apart(entries, entry, container, shown):
            return NoMatch(f"the answer in the place of {container.name} is another pod's; delete the pod")
        if len(entry.ids & reusable) != min(container.number, len(reusable)):
            return NoMatch(f"container {container.name} did not get its init containers' slots; delete the pod")
        reusable = reusable | entry.ids if container.kind is ContainerKind.INIT else reusable - entry.ids
    return None


def _told_apart(entries: Sequence[Entry], entry: Entry, container: SlotContainer, shown: Shown) -> bool:
    """True when no other pod has these slots, or each that has some got others beside, in an answer of its own."""
    beside = shown.beside(entry.ids)
    if not beside:
        return True
    answered = {one.ids for one in entries if one is not entry}
    return container.kind is not ContainerKind.INIT and entry.ids not in beside and answered.issuperset(beside)


def owner_of(
    ids: Ids, matches: Iterable[tuple[str, Mapping[str, str]]], entries: Sequence[Entry]
) -> tuple[str, Mapping[str, str]] | NoMatch:
    """Of the pods that match (pod, nonce -> container), the one that got exactly `ids` in one answer."""
    nonces = {entry.nonce for entry in entries if entry.ids == ids}
    found = [(pod, run) for pod, run in matches if nonces & run.keys()]
    if len(found) == 1:
        return found[0]
    if not found:
        return NoMatch("kubelet shows no pod that holds these slots yet")
    return NoMatch(f"more than one pod may hold these slots: {', '.join(sorted(pod for pod, _ in found))}")
