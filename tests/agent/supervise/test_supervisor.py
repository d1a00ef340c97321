"""The real supervisor over real processes: whatever becomes of one, it is started anew and the other runs on."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.kube.fake_api import until

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_SECONDS = 60


class Supervised:
    """A supervisor process and the folder in which its children leave notes."""

    def __init__(self, folder: Path, process: asyncio.subprocess.Process) -> None:
        self.folder = folder
        self.process = process

    def pid(self, name: str) -> int:
        path = self.folder / f"{name}.pid"
        text = path.read_text() if path.exists() else ""
        return int(text) if text else 0

    def notes(self, name: str) -> list[str]:
        path = self.folder / f"{name}.log"
        return path.read_text().splitlines() if path.exists() else []

    async def runs(self, *names: str, other_than: int = 0) -> None:
        await until(
            lambda: all(self.pid(n) not in (0, other_than) for n in names), f"{names} run", PATIENCE_SECONDS
        )


def is_alive(pid: int) -> bool:
    """Is there such a process, and is it more than an entry that nobody has taken yet?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@asynccontextmanager
async def supervised(
    folder: Path, *names: str, beat_seconds: float = 3, drain_seconds: float = 30
) -> AsyncIterator[Supervised]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.agent.supervise.supervised", "supervisor",
        str(folder), str(beat_seconds), str(drain_seconds), *names,
        cwd=ROOT, env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}/operator:{ROOT}"},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield Supervised(folder, process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_a_killed_child_is_started_anew_and_the_other_runs_on(tmp_path: Path) -> None:
    async with supervised(tmp_path, "a", "b") as agent:
        await agent.runs("a", "b")
        a, b = agent.pid("a"), agent.pid("b")
        os.kill(a, signal.SIGKILL)
        await agent.runs("a", other_than=a)
        assert agent.pid("b") == b
        assert is_alive(b)


async def test_a_stopped_child_is_killed_and_started_anew(tmp_path: Path) -> None:
    async with supervised(tmp_path, "a", "b") as agent:
        await agent.runs("a", "b")
        a, b = agent.pid("a"), agent.pid("b")
        os.kill(a, signal.SIGSTOP)
        await agent.runs("a", other_than=a)
        assert not is_alive(a)
        assert agent.pid("b") == b


async def test_a_child_that_holds_the_interpreter_lock_is_killed_and_started_anew(tmp_path: Path) -> None:
    await asyncio.to_thread((tmp_path / "a.do").write_text, "hold")
    async with supervised(tmp_path, "a") as agent:
        await agent.runs("a")
        a = agent.pid("a")
        await agent.runs("a", other_than=a)
        assert not is_alive(a)


async def test_without_the_limit_on_silence_a_stopped_child_stays(tmp_path: Path) -> None:
    """Shows that the tests above see the limit at work: of two children stopped together one is replaced."""
    limited, endless = tmp_path / "limited", tmp_path / "endless"
    for folder in (limited, endless):
        folder.mkdir()
    async with supervised(limited, "a") as agent, supervised(endless, "a", beat_seconds=1_000_000) as other:
        await agent.runs("a")
        await other.runs("a")
        a, stays = agent.pid("a"), other.pid("a")
        for pid in (stays, a):
            os.kill(pid, signal.SIGSTOP)
        await agent.runs("a", other_than=a)
        assert other.pid("a") == stays
        assert is_alive(stays)


async def test_a_supervisor_that_stood_still_itself_kills_nobody(tmp_path: Path) -> None:
    async with supervised(tmp_path, "a", "b", beat_seconds=2) as agent:
        await agent.runs("a", "b")
        a, b = agent.pid("a"), agent.pid("b")
        for pid in (agent.process.pid, a):
            os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(3.5)  # longer than the limit: there is nothing to wait for but time
        os.kill(agent.process.pid, signal.SIGCONT)
        os.kill(a, signal.SIGCONT)
        os.kill(b, signal.SIGKILL)
        await agent.runs("b", other_than=b)
        assert agent.pid("a") == a
        assert is_alive(a)


async def test_sigterm_ends_one_child_after_the_other_in_order(tmp_path: Path) -> None:
    await asyncio.to_thread((tmp_path / "first.do").write_text, "late 1")
    async with supervised(tmp_path, "first", "second") as agent:
        await agent.runs("first", "second")
        agent.process.send_signal(signal.SIGTERM)
        await until(lambda: "told to end" in agent.notes("first"), "told", PATIENCE_SECONDS)
        assert agent.notes("second") == ["started"]
        assert await agent.process.wait() == 0
        assert agent.notes("first") == agent.notes("second") == ["started", "told to end", "ends"]


async def test_a_child_that_does_not_end_is_killed(tmp_path: Path) -> None:
    await asyncio.to_thread((tmp_path / "a.do").write_text, "ignore")
    async with supervised(tmp_path, "a", drain_seconds=0.5) as agent:
        await agent.runs("a")
        a = agent.pid("a")
        agent.process.send_signal(signal.SIGTERM)
        assert await agent.process.wait() == 0
        assert agent.notes("a") == ["started", "told to end"]
        assert not is_alive(a)


async def test_a_stopped_child_does_not_hold_up_the_end(tmp_path: Path) -> None:
    async with supervised(tmp_path, "a", beat_seconds=1.5) as agent:
        await agent.runs("a")
        os.kill(agent.pid("a"), signal.SIGSTOP)
        agent.process.send_signal(signal.SIGTERM)
        assert await agent.process.wait() == 0


async def test_children_do_not_outlive_a_killed_supervisor(tmp_path: Path) -> None:
    async with supervised(tmp_path, "a", "b") as agent:
        await agent.runs("a", "b")
        agent.process.kill()
        await until(
            lambda: not is_alive(agent.pid("a")) and not is_alive(agent.pid("b")), "gone", PATIENCE_SECONDS
        )


@pytest.mark.parametrize(
    ("status", "want"), [pytest.param(2, 2, id="wrong setting"), pytest.param(3, 0, id="nothing to do anywhere")]
)
async def test_some_ends_are_final(status: int, want: int, tmp_path: Path) -> None:
    await asyncio.to_thread((tmp_path / "a.do").write_text, f"exit {status}")
    async with supervised(tmp_path, "a") as agent:
        assert await agent.process.wait() == want
        assert agent.notes("a") == ["started"]


async def test_a_wrong_setting_of_one_child_ends_the_other_in_order(tmp_path: Path) -> None:
    async with supervised(tmp_path, "a", "b") as agent:
        await agent.runs("a", "b")
        b = agent.pid("b")
        await asyncio.to_thread((tmp_path / "b.do").write_text, "exit 3")
        os.kill(b, signal.SIGKILL)
        await until(lambda: agent.notes("b").count("started") == 2, "b ended for good", PATIENCE_SECONDS)
        assert is_alive(agent.pid("a"))
        agent.process.send_signal(signal.SIGTERM)
        assert await agent.process.wait() == 0
        assert agent.notes("a")[-1] == "ends"


async def test_the_terminals_interrupt_reaches_the_supervisor_alone(tmp_path: Path) -> None:
    async with supervised(tmp_path, "a") as agent:
        await agent.runs("a")
        assert os.getpgid(agent.pid("a")) != os.getpgid(agent.process.pid)
        agent.process.send_signal(signal.SIGINT)
        assert await agent.process.wait() == 0
        assert agent.notes("a") == ["started", "told to end", "ends"]
