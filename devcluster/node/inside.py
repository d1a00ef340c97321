"""Process 1 of a node's namespaces: sets up mounts and network, then reaps whatever is left to it.

Started as `python -I -S inside.py SETUP.json`. The machine's own files stay as they are: everything that a node
writes below /etc, /run, /var and /proc/sys, and into the isolation library's folders, lands in the node's folder
or in the namespaces; of those last folders empty mount points stay on the machine. Its process id as the rest of
the machine knows it is written to `ready` in that folder when all is set up. Imports only what the bare
interpreter has. May not live here: which programs run on the node.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

OVERLAID = ("/etc", "/var")


def main() -> None:
    """Set up, tell that all is ready, reap for ever."""
    setup: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(setup["folder"])
    outer_pid = os.readlink("/proc/self")  # still the outer /proc
    _mounts(folder, setup)
    _network(setup)
    _run("hostname", setup["hostname"])
    partial = folder / "ready.partial"
    partial.write_text(outer_pid)
    partial.rename(folder / "ready")
    _reap()


def _mounts(folder: Path, setup: dict[str, Any]) -> None:
    # Pods may ask for mounts that spread between host and container: one peer group, ending at this namespace.
    _run("mount", "--make-rshared", "/")
    _run("mount", "-t", "proc", "proc", "/proc")
    for path in OVERLAID:
        layers = folder / "layers" / path.strip("/")
        upper, work = layers / "upper", layers / "work"
        upper.mkdir(parents=True)
        work.mkdir()
        _run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={path},upperdir={upper},workdir={work}", path)
    for target, name in setup["binds"].items():
        source = folder / name
        source.mkdir(parents=True, exist_ok=True)
        Path(target).mkdir(parents=True, exist_ok=True)
        _run("mount", "--bind", str(source), target)
    _keep_kernel_settings(folder / "kernel-settings", setup["kernel_settings"])


def _keep_kernel_settings(folder: Path, settings: dict[str, str]) -> None:
    """Put a file over each setting that kubelet would change: they are the whole machine's, in no namespace."""
    folder.mkdir()
    for name, value in settings.items():
        stand_in = folder / name
        stand_in.write_text(f"{value}\n")
        _run("mount", "--bind", str(stand_in), f"/proc/sys/{name.replace('.', '/')}")


def _network(setup: dict[str, Any]) -> None:
    bridge = setup["bridge"]
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", bridge, "type", "bridge")
    _run("ip", "address", "add", setup["address"], "dev", bridge)
    _run("ip", "link", "set", bridge, "up")
    _run("ip", "route", "add", setup["service_range"], "dev", bridge)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _run(*command: str) -> None:
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {result.returncode}: {result.stderr.strip()}")


def _reap() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        signal.sigwait({signal.SIGCHLD})


if __name__ == "__main__":
    main()
