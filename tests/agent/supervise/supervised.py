"""Runs the real supervisor over children that do what a test tells them by files in a folder.

As a program: `python -m tests.agent.supervise.supervised supervisor FOLDER BEAT_SECONDS DRAIN_SECONDS NAME...` or
`... child FOLDER NAME`. A child writes its process id to FOLDER/NAME.pid, and appends a line to FOLDER/NAME.log at
its start and at SIGTERM. FOLDER/NAME.do is read at the start: `exit STATUS`, `hold` (sleeps with the interpreter
lock held), `ignore` (SIGTERM), `late SECONDS` (before the end), `leave` (an orphan).
"""

import asyncio
import ctypes
import logging
import os
import signal
import sys
from pathlib import Path

from vgpu.agent.clock import SystemClock
from vgpu.agent.supervise.beat import beat, beat_pipe
from vgpu.agent.supervise.policy import Limits
from vgpu.agent.supervise.process import ChildSpec
from vgpu.agent.supervise.supervisor import Supervisor

PR_SET_CHILD_SUBREAPER = 36


def supervise(folder: Path, beat_seconds: float, drain_seconds: float, children: list[str]) -> int:
    """The supervisor over children of this module."""
    logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
    own = (sys.executable, "-m", "tests.agent.supervise.supervised", "child", str(folder))
    specs = [ChildSpec(name, (*own, name), {"VGPU_TEST_CHILD": name}) for name in children]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # as process 1 of a container: orphans become its own
    limits = Limits(beat=beat_seconds, first_pause=0.1, longest_pause=0.2, drain=drain_seconds)
    return Supervisor(specs, limits).run()


async def live(folder: Path, name: str) -> int:
    """One child."""

    def note(what: str) -> None:
        with (folder / f"{name}.log").open("a") as log:
            log.write(what + "\n")

    ending = asyncio.Event()
    told = (folder / f"{name}.do").read_text().split() if (folder / f"{name}.do").exists() else [""]

    def end() -> None:
        note("told to end")
        if told[0] != "ignore":
            ending.set()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
    if told[0] == "exit":
        note("started")
        return int(told[1])
    beating = asyncio.create_task(beat(beat_pipe(), SystemClock()))
    await asyncio.sleep(0)
    if told[0] == "leave":
        shell = await asyncio.create_subprocess_exec("sh", "-c", f"sleep 1 & echo $! >{folder}/orphan.pid")
        await shell.wait()
    (folder / f"{name}.pid").write_text(str(os.getpid()))
    note("started")
    if told[0] == "hold":
        (folder / f"{name}.do").unlink()
        ctypes.PyDLL(None).sleep(3600)
    await ending.wait()
    if told[0] == "late":
        await asyncio.sleep(float(told[1]))
    note("ends")
    beating.cancel()
    return 0


if __name__ == "__main__":
    place = Path(sys.argv[2])
    if sys.argv[1] == "supervisor":
        sys.exit(supervise(place, float(sys.argv[3]), float(sys.argv[4]), sys.argv[5:]))
    sys.exit(asyncio.run(live(place, sys.argv[3])))
