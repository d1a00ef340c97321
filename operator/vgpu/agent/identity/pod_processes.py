"""Which pods have processes on this node, by the kernel's control groups, whatever the API says of them.

Pod uids enter, those with a process leave. kubelet keeps one group per pod below its group `kubepods`, named
`pod<uid>` or, with the systemd driver, `...-pod<uid with _>.slice`. A counter of the group is read and not its
list of processes: that shows a reader only those of its own process namespace, and the agent has its own.
May not live here: what follows for the cards.
"""

import errno
import logging
import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vgpu.errors import VgpuError

LOG = logging.getLogger(__name__)
KUBELETS = re.compile(r"(.+-)?kubepods(\.slice)?")
POD = re.compile(r"pod(?P<uid>.+)|.+-pod(?P<escaped>[^-]+)\.slice")
LEVELS = 2
"""A pod's group is in kubelet's or in that of its service class."""


class PodProcesses(Protocol):
    """Knows whose processes are there."""

    def alive(self, uids: Collection[str]) -> frozenset[str]:
        """Those of these pods that have a process; none of them where that cannot be told."""


class NotShown(VgpuError):
    """The folder does not show the groups of this node's pods."""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One tree of groups, and whether the counter in `file` says that a group or one below it has a process."""

    top: Path
    file: str
    counts: Callable[[str], bool]

    def has_process(self, group: Path) -> bool:
        """Is there one? A group that is gone has none."""
        try:
            return self.counts((group / self.file).read_text())
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENODEV):
                return False
            raise


class ControlGroups:
    """The groups below `folder`, the node's /sys/fs/cgroup. What cannot be seen is logged once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fault = ""

    def alive(self, uids: Collection[str]) -> frozenset[str]:
        """Those of these pods that have a process; none of them where that cannot be told."""
        return self._look(uids) if uids else frozenset()

    def check(self) -> None:
        """Log now if the groups cannot be seen, rather than when they are needed."""
        self._look(())

    def _look(self, uids: Collection[str]) -> frozenset[str]:
        try:
            found, fault = pods_alive(self._folder, uids), ""
        except (NotShown, OSError) as error:
            found, fault = frozenset[str](), str(error)
        if fault and fault != self._fault:
            LOG.error(
                "processes of pods deleted by force cannot be seen: their cards are given on at once problem=%s",
                fault,
            )
        elif self._fault and not fault:
            LOG.info("processes of pods can be seen again folder=%s", self._folder)
        self._fault = fault
        return found


def pods_alive(folder: Path, uids: Collection[str]) -> frozenset[str]:
    """Those of these pods that have a process. Raises NotShown, or OSError where a group cannot be read."""
    tree = _hierarchy(folder)
    kubelets = list(_kubelets_groups(tree.top))
    if not kubelets:
        raise NotShown(f"no group of kubelet's (kubepods) is below {tree.top}: {_remedy(folder)}")
    wanted = {uid: uid for uid in uids} | {uid.replace("-", "_"): uid for uid in uids}
    found = set()
    for kubelet in kubelets:
        for name, group in _pod_groups(kubelet, LEVELS):
            if name in wanted and tree.has_process(group):
                found.add(wanted[name])
    return frozenset(found)


def _hierarchy(folder: Path) -> Hierarchy:
    if (folder / "cgroup.controllers").exists():
        return Hierarchy(folder, "cgroup.events", lambda text: "populated 1" in text.splitlines())
    counting = folder / "pids"  # version 1 has a tree per controller; this one counts what is in it and below
    if counting.is_dir():
        return Hierarchy(counting, "pids.current", lambda text: int(text) > 0)
    raise NotShown(f"{folder} has no control groups, or none that count processes (pids): {_remedy(folder)}")


def _remedy(folder: Path) -> str:
    return f"mount the node's /sys/fs/cgroup at {folder}, or name its place by VGPU_AGENT_CONTROL_GROUPS"


def _kubelets_groups(group: Path) -> Iterator[Path]:
    """kubelet may have been given any group to begin in."""
    for inner in _inside(group):
        if KUBELETS.fullmatch(inner.name):
            yield inner
        else:
            yield from _kubelets_groups(inner)


def _pod_groups(group: Path, levels: int) -> Iterator[tuple[str, Path]]:
    """Each pod's uid, as the group's name writes it, and its group."""
    for inner in _inside(group):
        if (named := POD.fullmatch(inner.name)) is not None:
            yield named["uid"] or named["escaped"], inner
        elif levels > 1:
            yield from _pod_groups(inner, levels - 1)


def _inside(group: Path) -> list[Path]:
    try:
        with os.scandir(group) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []  # gone meanwhile
