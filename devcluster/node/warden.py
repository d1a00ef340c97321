"""Keeps the namespaces of one node while their owner lives, and clears up after them however the owner ends.

Started as `python -I -S warden.py OWNER_PID FOLDER COMMAND...`; runs the command as process 1 of new mount,
network, process, IPC and host name namespaces. When the owner ends, when it is told to end (SIGTERM), or when the
command ends, the kernel ends every process of the namespaces with process 1, and the warden removes the node's
control groups, called FOLDER's name and its own process id. It makes them, too, and sweeps up those of a warden
that was killed itself. Imports only what the bare interpreter has. May not live here: what is set up inside
(inside.py).
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
UNSHARE = (
    "unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--propagation", "private",
)  # fmt: skip
CLEARING_SECONDS = 10.0
POLL_SECONDS = 0.02


def main() -> None:
    """Run the command in namespaces of its own until something ends."""
    owner, folder, command = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    endings = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, endings)
    _die_with_parent(signal.SIGTERM)
    if os.getppid() != owner:  # the owner ended before the request reached the kernel
        sys.exit(1)
    name = f"{folder.name}.{os.getpid()}"
    _sweep(folder.name[: folder.name.rindex("-") + 1])
    _make_control_groups(name)
    child = subprocess.Popen([*UNSHARE, "--", *command], preexec_fn=_in_child)  # noqa: PLW1509 (one thread)
    signal.sigwait(endings)
    ended_by_itself = child.poll() is not None
    child.kill()
    child.wait()
    _remove_control_groups(name)
    sys.exit(1 if ended_by_itself else 0)


def _in_child() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    _die_with_parent(signal.SIGKILL)


def _die_with_parent(number: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")


def _sweep(prefix: str) -> None:
    for mount in _hierarchies():
        for group in mount.glob(f"{prefix}*"):
            if not Path("/proc", group.suffix[1:]).exists():
                _removed(group)


def _make_control_groups(name: str) -> None:
    """kubelet wants its root group to be there in every hierarchy, and cpuset groups start without anything."""
    for mount in _hierarchies():
        group = mount / name
        group.mkdir()
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (group / file).exists() and (mount / file).exists():
                (group / file).write_text((mount / file).read_text())


def _remove_control_groups(name: str) -> None:
    """Remove the groups of this name in every hierarchy; they empty as the kernel ends their processes."""
    deadline = time.monotonic() + CLEARING_SECONDS
    for mount in _hierarchies():
        group = mount / name
        while group.exists() and not _removed(group):
            if time.monotonic() > deadline:
                sys.exit(f"{group} still holds processes")
            time.sleep(POLL_SECONDS)


def _removed(group: Path) -> bool:
    try:
        for folder, _, _ in os.walk(group, topdown=False):
            os.rmdir(folder)
    except FileNotFoundError:
        return True  # somebody else swept it up
    except OSError:
        return False
    return True


def _hierarchies() -> list[Path]:
    """Mount points of control group hierarchies; the fields are those of proc(5)'s mountinfo."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    halves = [line.split(" - ") for line in lines]
    return [Path(before.split()[4]) for before, after in halves if after.split()[0] in ("cgroup", "cgroup2")]


if __name__ == "__main__":
    main()
