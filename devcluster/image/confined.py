"""Runs a step of an image build in process and mount namespaces of its own.

Enters: a command. Leaves: its output, and nothing else: when the step ends, or we do, the kernel ends every
process of it and takes its mounts away. May not live here: which steps a build has.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from devcluster.errors import BuildFailed
from devcluster.progress import Progress

LEASH = Path(__file__).parents[1] / "leash.py"
UNSHARE = "/usr/bin/unshare"
FAILURE_LINES_SHOWN = 20
SHOWN_CHARACTERS = 60


def run_confined(title: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """Run the command to its end and hand back what it printed; shows progress under the title.

    Raises BuildFailed with the end of the output.
    """
    namespaces = [UNSHARE, "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    leash = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid())]
    process = subprocess.Popen(
        [*leash, *namespaces, *command], env={**os.environ, **(environment or {})}, start_new_session=True,
        text=True, errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    lines: list[str] = []
    try:
        with Progress(title) as progress:
            for line in process.stdout:
                lines.append(line.rstrip())
                progress.step(line.strip()[:SHOWN_CHARACTERS])
        status = process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if status != 0:
        tail = "\n".join(lines[-FAILURE_LINES_SHOWN:])
        raise BuildFailed(f"{title} failed: {command[0]} ended with {status}:\n{tail}")
    return "\n".join(lines)
