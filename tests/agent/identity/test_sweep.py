"""Folders that containers wrote into go, however deep and large they are, and hold nobody up."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agent.identity.bench import Bench, assign, make_pod
from tests.kube.fake_api import until
from vgpu.agent.identity import sweep
from vgpu.agent.identity.sweep import Sweeper

NAMES = ("a", "b", "c")


def dig(folder: Path, levels: int, name: str = "d") -> None:
    """A folder in a folder in a folder: its path is longer than a path may be."""
    handle = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=handle)
        inner = os.open(name, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=handle))
    os.close(handle)


@pytest.fixture
def gone(tmp_path: Path) -> Path:
    return tmp_path / "gone"


@contextmanager
def unremovable(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[None]:
    real = os.unlink

    def unlink(path: str, *, dir_fd: int | None = None) -> None:
        if path == name:
            raise PermissionError(1, "Operation not permitted")
        real(path, dir_fd=dir_fd)

    with monkeypatch.context() as patched:
        patched.setattr(sweep.os, "unlink", unlink)
        yield


def inside(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_no_depth_is_too_deep(tmp_path: Path, gone: Path) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    dig(folder, 3000, "a-long-name-of-a-folder")
    sweeper = Sweeper(gone)
    sweeper.take(folder)
    await sweeper.sweep()
    assert not folder.exists()
    assert inside(gone) == []


async def test_files_links_and_full_folders_go_and_what_links_point_to_stays(tmp_path: Path, gone: Path) -> None:
    folder, other = tmp_path / "full", tmp_path / "other"
    other.mkdir()
    (other / "kept").write_text("x")
    (folder / "in" / "inner").mkdir(parents=True)
    (folder / "to-other").symlink_to(other)
    for number in range(3000):
        (folder / "in" / str(number)).touch()
    os.mkfifo(folder / "in" / "fifo")
    sweeper = Sweeper(gone)
    for path in (folder, tmp_path / "missing"):
        sweeper.take(path)
    link = tmp_path / "link"
    link.symlink_to(other)
    sweeper.take(link)
    await sweeper.sweep()
    assert inside(gone) == []
    assert (other / "kept").exists()


async def test_what_cannot_be_removed_is_told_once_and_keeps_nothing_else(
    tmp_path: Path, gone: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    for name in ("stuck", "x", "y", "z"):
        (folder / name).touch()
    sweeper = Sweeper(gone)
    sweeper.take(folder)
    with unremovable(monkeypatch, "stuck"):
        for _ in range(3):
            await sweeper.sweep()
        [left] = inside(gone)
        assert [path.name for path in left.iterdir()] == ["stuck"]
    told = [record.getMessage() for record in caplog.records]
    assert sum("stuck: [Errno 1] Operation not permitted" in text for text in told) == 1
    await sweeper.sweep()
    assert inside(gone) == []


async def test_what_an_earlier_process_left_goes_and_what_comes_later_too(tmp_path: Path, gone: Path) -> None:
    (gone / "left").mkdir(parents=True)
    sweeper = Sweeper(gone)
    work = asyncio.create_task(sweeper.run())
    await until(lambda: not inside(gone), "the first is gone")
    later = tmp_path / "later"
    later.mkdir()
    sweeper.take(later)
    await until(lambda: not inside(gone), "the second is gone")
    work.cancel()
    await asyncio.wait({work})


async def test_an_end_does_not_wait_for_a_large_folder(
    tmp_path: Path, gone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "large"
    folder.mkdir()
    for number in range(2000):
        (folder / str(number)).touch()
    begun, cancelled = asyncio.Event(), threading.Event()
    loop, real = asyncio.get_running_loop(), os.scandir

    def scandir(handle: int) -> Any:
        loop.call_soon_threadsafe(begun.set)
        cancelled.wait()
        return real(handle)

    monkeypatch.setattr(sweep.os, "scandir", scandir)
    sweeper = Sweeper(gone)
    sweeper.take(folder)
    work = asyncio.create_task(sweeper.sweep())
    await begun.wait()
    work.cancel()
    await asyncio.wait({work})
    cancelled.set()
    await loop.shutdown_default_executor()
    assert inside(gone)


async def gone_pods(bench: Bench) -> None:
    for name in NAMES:
        await bench.start(bench.run(make_pod(name, assign(f"uid-{name}", main=[("card-0", 3000)]))))
    for name in NAMES:
        bench.kubelet.remove(name)
        bench.delete(name)


async def test_one_pod_whose_folder_cannot_be_moved_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path)
    await gone_pods(bench)
    real = Sweeper.take

    def take(self: Sweeper, path: Path) -> None:
        if path.name == "uid-a_main":
            raise PermissionError(1, "Operation not permitted")
        real(self, path)

    with monkeypatch.context() as patched:
        patched.setattr(Sweeper, "take", take)
        assert [await bench.collector.collect() for _ in range(3)] == [False] * 3
    assert set(bench.log.grants) == {"uid-a"}
    assert sum("uid=uid-a problem=" in record.getMessage() for record in caplog.records) == 1
    assert await bench.collector.collect()
    assert dict(bench.log.grants) == {}


async def test_a_deep_folder_goes_with_its_pod(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.start(bench.run(make_pod("p", assign("uid-p", main=[("card-0", 3000)]))))
    dig(bench.places.cache("uid-p", "main"), 1500)
    bench.kubelet.remove("p")
    bench.delete("p")
    assert await bench.collector.collect()
    assert dict(bench.log.grants) == {}
    assert not bench.places.cache("uid-p", "main").exists()
    await bench.files.sweeper.sweep()
    assert bench.places.gone is not None
    assert inside(bench.places.gone) == []
