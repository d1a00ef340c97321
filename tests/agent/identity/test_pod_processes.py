"""Which pods have processes, in trees of control groups like those of both versions and both drivers."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from vgpu.agent.identity.pod_processes import ControlGroups

LIVES, ENDED, ABSENT = (f"{n}cf4a6ce-0ad4-4e2b-9d3b-7f3f2f9c1d2e" for n in (1, 2, 3))
ALL = (LIVES, ENDED, ABSENT)


@dataclass(frozen=True)
class Tree:
    """A node's /sys/fs/cgroup of one version, with the groups as one driver of kubelet names them."""

    folder: Path
    version: int
    driver: str

    @property
    def top(self) -> Path:
        return self.folder if self.version == 2 else self.folder / "pids"

    def make(self) -> "Tree":
        self.top.mkdir(parents=True)
        if self.version == 2:
            (self.folder / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
        else:
            (self.folder / "memory").mkdir()
        self.group(self.top / "system.slice" / "containerd.service", 12)
        return self

    def pod(self, uid: str, processes: int, service_class: str = "besteffort", begin: str = "") -> Path:
        """A pod whose only container has so many processes."""
        pod = self.top / self._path(uid, service_class, begin)
        self.group(pod, processes)
        self.group(pod / ("cri-containerd-0a1b.scope" if self.driver == "systemd" else "0a1b"), processes)
        return pod

    def group(self, path: Path, processes: int) -> None:
        """As the kernel shows it to a reader in another process namespace: counters, and an empty list."""
        path.mkdir(parents=True, exist_ok=True)
        (path / "cgroup.procs").write_text("")
        if self.version == 2:
            (path / "cgroup.events").write_text(f"populated {int(processes > 0)}\nfrozen 0\n")
        else:
            (path / "pids.current").write_text(f"{processes}\n")

    def _path(self, uid: str, service_class: str, begin: str) -> str:
        if self.driver == "cgroupfs":
            return "/".join(part for part in (begin, "kubepods", service_class, f"pod{uid}") if part)
        names = [part for part in (begin, "kubepods", service_class, f"pod{uid.replace('-', '_')}") if part]
        return "/".join("-".join(names[: end + 1]) + ".slice" for end in range(len(names)))


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def version(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


@pytest.fixture(params=["cgroupfs", "systemd"])
def tree(tmp_path: Path, version: int, request: pytest.FixtureRequest) -> Tree:
    return Tree(tmp_path / "cgroup", version, request.param).make()


@pytest.mark.parametrize("service_class", ["", "burstable", "besteffort"], ids=["guaranteed", "burstable", "best"])
def test_a_pod_with_a_process_is_told_from_one_without(tree: Tree, service_class: str) -> None:
    tree.pod(LIVES, 3, service_class)
    tree.pod(ENDED, 0, service_class)
    assert ControlGroups(tree.folder).alive(ALL) == {LIVES}


def test_kubelets_groups_are_found_wherever_they_begin(tree: Tree) -> None:
    tree.pod(LIVES, 1, begin="kubelet")
    assert ControlGroups(tree.folder).alive(ALL) == {LIVES}


def test_a_pod_whose_last_process_ends_is_seen_to_have_none(tree: Tree) -> None:
    pod = tree.pod(LIVES, 1)
    groups = ControlGroups(tree.folder)
    assert groups.alive(ALL) == {LIVES}
    tree.group(pod, 0)
    assert groups.alive(ALL) == frozenset()


def test_only_pods_that_were_asked_about_are_told(tree: Tree) -> None:
    tree.pod(LIVES, 1)
    assert ControlGroups(tree.folder).alive([ENDED]) == frozenset()


def test_a_group_that_goes_away_meanwhile_has_no_process(tree: Tree) -> None:
    pod = tree.pod(LIVES, 1)
    (pod / ("cgroup.events" if tree.version == 2 else "pids.current")).unlink()
    assert ControlGroups(tree.folder).alive(ALL) == frozenset()


def no_groups(folder: Path) -> None:
    folder.mkdir()


def no_folder(folder: Path) -> None:
    """Nothing is mounted."""


def only_its_own(folder: Path) -> None:
    """What a container sees of itself where the node's folder is not mounted."""
    Tree(folder, 2, "cgroupfs").make()


@pytest.mark.parametrize("make", [no_folder, no_groups, only_its_own])
def test_groups_that_cannot_be_seen_are_told_once_and_hold_back_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Callable[[Path], None]
) -> None:
    folder = tmp_path / "cgroup"
    make(folder)
    groups = ControlGroups(folder)
    groups.check()
    for _ in range(3):
        assert groups.alive(ALL) == frozenset()
    [told] = [record.getMessage() for record in caplog.records]
    assert "processes of pods deleted by force cannot be seen" in told
    assert f"mount the node's /sys/fs/cgroup at {folder}, or name its place by VGPU_AGENT_CONTROL_GROUPS" in told


def test_groups_that_come_into_sight_are_told_and_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tree = Tree(tmp_path / "cgroup", 2, "cgroupfs")
    groups = ControlGroups(tree.folder)
    groups.check()
    tree.make().pod(LIVES, 1)
    assert groups.alive(ALL) == {LIVES}
    assert "processes of pods can be seen again" in caplog.records[-1].getMessage()


def test_nothing_is_said_where_all_is_in_order(tree: Tree, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tree.pod(LIVES, 1)
    groups = ControlGroups(tree.folder)
    groups.check()
    groups.alive(ALL)
    assert caplog.records == []
