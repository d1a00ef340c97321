"""What a granted pod's containers need on the node: folders, the preload file, and the pod's CDI file.

Enters: a grant, its assignment, the node's cards. Leaves: files, under folders that are the same inside this
agent's container and on the node, since a CDI file names the node's. May not live here: whether a pod may start.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from vgpu.agent.identity.allocation_log import Grant, GrantedContainer
from vgpu.agent.identity.cdi import CdiFolder, content_of, put_in_place
from vgpu.agent.identity.contract import (
    CONTROL_DEVICES,
    LIBRARY,
    LOCK_FOLDER,
    Edits,
    Paths,
    Rules,
    Subject,
    edits_for,
    needs_limits,
)
from vgpu.agent.identity.port import CardNow
from vgpu.agent.identity.sweep import Sweeper
from vgpu.agent.isolation import library_fault
from vgpu.api.assignment import AssignmentModel

OPEN_TO_ALL = 0o777  # containers of any user write here: HAMi-core's contract


@dataclass(frozen=True, slots=True)
class Places:
    """Folders of this node. `library` is libvgpu.so, "" where limits are told and not held."""

    cdi: Path
    state: Path
    library: str
    locks: Path = Path(LOCK_FOLDER)
    devices: Path = Path("/dev")

    @property
    def preload(self) -> Path:
        """The file that becomes a container's /etc/ld.so.preload."""
        return self.state / "ld.so.preload"

    @property
    def gone(self) -> Path | None:
        """Where folders of gone pods wait to be removed: beside those of the others."""
        return Path(self.library).parent / "gone" if self.library else None

    def cache(self, pod_uid: str, container: str) -> Path:
        """Where libvgpu counts for one container; HAMi's monitor looks for this name beside the library."""
        return Path(self.library).parent / "containers" / f"{pod_uid}_{container}"


class ContainerFiles:
    """The files of all granted pods."""

    def __init__(self, places: Places, rules: Rules) -> None:
        self._places = places
        self._rules = rules
        self._cdi = CdiFolder(places.cdi)
        self.sweeper = Sweeper(places.gone)

    def isolation_fault(self, assignment: AssignmentModel, cards: Mapping[str, CardNow]) -> str:
        """Why its containers could not be held to their limits; "" when they can, or have none.

        Every card must be among `cards`.
        """
        limited = any(needs_limits(container.cards, cards) for container in assignment.containers)
        fault = library_fault(self._places.library) if limited else ""
        return fault and f"it could not be held to its memory and cores: {fault}"

    def ensure(self, grant: Grant, assignment: AssignmentModel, cards: Mapping[str, CardNow]) -> None:
        """Everything is there and says this. Raises OSError."""
        edits = {c.nonce: self.prepare(grant.uid, c, assignment, cards) for c in grant.containers}
        self._cdi.ensure(grant.uid, edits)

    def prepare(
        self,
        pod_uid: str,
        container: GrantedContainer,
        assignment: AssignmentModel,
        cards: Mapping[str, CardNow],
    ) -> Edits:
        """What one container finds inside; the folders for it are made. Raises OSError."""
        given = {one.name: one.cards for one in assignment.containers}
        subject = Subject(container.nonce, given[container.name], container.control_off, container.priority)
        cache = self._places.cache(pod_uid, container.name)
        edits = edits_for(subject, cards, self._paths(cache), self._rules)
        if edits.mounts:
            self._make_folders(cache)
        return replace(edits, devices=tuple(path for path in edits.devices if self._is_wanted(path)))

    def remove(self, grant: Grant) -> None:
        """The pod is gone for certain: remove what was made for it alone, at once. Raises OSError."""
        self._cdi.remove(grant.uid)
        for container in grant.containers:
            self.sweeper.take(self._places.cache(grant.uid, container.name))

    def pods_with_files(self) -> Iterable[str]:
        """The uids of the pods that have a CDI file."""
        return self._cdi.pods()

    def cards_of_unrecorded(self, recorded: Collection[str]) -> Mapping[str, frozenset[str] | None]:
        """Pods that have a CDI file and are not in `recorded`: uid -> its cards, None where it does not tell."""
        return {uid: self._cdi.cards(uid) for uid in self._cdi.pods() if uid not in recorded}

    def remove_unknown(self, pod_uid: str) -> None:
        """A pod of which no grant is left is gone for certain. Raises OSError."""
        self._cdi.remove(pod_uid)

    def _is_wanted(self, device: str) -> bool:
        """Which control files a driver has differs; a card's own file that is missing must be noticed."""
        return device not in CONTROL_DEVICES or (self._places.devices / Path(device).name).exists()

    def _paths(self, cache: Path) -> Paths:
        places = self._places
        return Paths(places.library, str(places.preload), str(cache), str(places.locks))

    def _make_folders(self, cache: Path) -> None:
        for folder in (cache, self._places.locks):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(OPEN_TO_ALL)  # mkdir's mode is cut by the umask
        preload = self._places.preload
        text = f"{LIBRARY}\n".encode()
        if content_of(preload) != text:  # running containers have the file itself mounted
            put_in_place(preload, text, preload.with_suffix(".tmp"))
