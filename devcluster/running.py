"""The one cluster that is left running for a person: its state on disk, finding it again, ending it.

Enters: a started cluster that is not leashed to this process. Leaves: a state file in the cache folder. A process
is recognised by its id and its start time, so that a reused id is never ended.
"""

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from devcluster.build import cache_root
from devcluster.process import Process

END_TIMEOUT_SECONDS = 10.0
POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """One process of the running cluster; `started_ticks` is field 22 of proc(5)'s stat."""

    name: str
    pid: int
    started_ticks: int

    def alive(self) -> bool:
        """Whether this very process still runs."""
        return _started_ticks(self.pid) == self.started_ticks


@dataclass(frozen=True, slots=True)
class Running:
    """What a later command needs to know of the running cluster."""

    server: str
    kubeconfig: Path
    processes: tuple[RunningProcess, ...]


def state_folder() -> Path:
    """The folder of the cluster that runs for a person."""
    return cache_root() / "running"


def save(server: str, kubeconfig: Path, processes: Mapping[str, Process]) -> Running:
    """Write down a cluster that is to outlive this process."""
    known = tuple(
        RunningProcess(name, item.pid, _started_ticks(item.pid) or 0) for name, item in processes.items()
    )
    content = {"server": server, "kubeconfig": str(kubeconfig), "processes": [asdict(item) for item in known]}
    (state_folder() / "state.json").write_text(json.dumps(content, indent=1))
    return Running(server, kubeconfig, known)


def load() -> Running | None:
    """The cluster that was left running, with whatever of it still runs; None without a state file."""
    path = state_folder() / "state.json"
    if not path.exists():
        return None
    content = json.loads(path.read_text())
    processes = tuple(RunningProcess(**item) for item in content["processes"])
    return Running(content["server"], Path(content["kubeconfig"]), processes)


def end(running: Running) -> None:
    """End its processes hard, wait until they are gone, remove its folder."""
    for process in running.processes:
        if process.alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + END_TIMEOUT_SECONDS
    while any(process.alive() for process in running.processes) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    shutil.rmtree(state_folder(), ignore_errors=True)


def _started_ticks(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])
