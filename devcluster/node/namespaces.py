"""The namespaces of one node: made, entered, and gone with their owner.

Enters: the node's folder and its addresses. Leaves: a command prefix that runs a program inside. May not live
here: which programs run there.
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import StartFailed
from devcluster.process import Command, Process
from devcluster.waiting import wait_until

WARDEN = Path(__file__).with_name("warden.py")
INSIDE = Path(__file__).with_name("inside.py")
CONTROL_GROUPS = Path("/sys/fs/cgroup")
READY_TIMEOUT_SECONDS = 20.0
END_TIMEOUT_SECONDS = 20.0
POLL_SECONDS = 0.01
# Mount point inside -> name in the node's folder, where the rest of the machine can look.
BINDS: Mapping[str, str] = {
    "/run": "run",
    "/var/lib/kubelet": "kubelet",
    "/var/lib/vgpu": "vgpu",
    "/var/log/pods": "pod-logs",
    "/usr/local/vgpu": "isolation",
    "/tmp/vgpulock": "isolation-locks",
}
# What kubelet sets, and refuses to run without; true to it inside, the machine's own values stay.
KERNEL_SETTINGS: Mapping[str, str] = {
    "vm.overcommit_memory": "1",
    "vm.panic_on_oom": "0",
    "kernel.panic": "10",
    "kernel.panic_on_oops": "1",
    "kernel.keys.root_maxkeys": "1000000",
    "kernel.keys.root_maxbytes": "25000000",
}


@dataclass(frozen=True, slots=True)
class Network:
    """The node's bridge with its own address (with prefix length), and the range routed to Services."""

    bridge: str
    address: str
    service_range: str


class Namespaces:
    """Mount, network, process, IPC and host name namespaces with a process 1 that reaps."""

    def __init__(self, folder: Path, hostname: str, network: Network) -> None:
        self.folder = folder
        self._hostname = hostname
        self._network = network
        self._warden: Process | None = None
        self.pid = 0
        """Process 1, by the number that the rest of the machine knows it by."""

    @property
    def warden(self) -> Process:
        """The process that keeps the namespaces. Raises StartFailed while there is none."""
        if self._warden is None:
            raise StartFailed("the node's namespaces are not there")
        return self._warden

    @property
    def control_group(self) -> str:
        """The group below which the node's containers belong, in every hierarchy; removed at the end."""
        return f"{self.folder.parent.name}.{self.warden.pid}"

    def start(self) -> None:
        """Make the namespaces and wait until mounts and network are set up. Raises StartFailed."""
        self.folder.mkdir()
        setup = self.folder / "setup.json"
        setup.write_text(json.dumps({
            "folder": str(self.folder), "hostname": self._hostname, "binds": dict(BINDS),
            "kernel_settings": dict(KERNEL_SETTINGS), "bridge": self._network.bridge,
            "address": self._network.address, "service_range": self._network.service_range,
        }))  # fmt: skip
        python = [sys.executable, "-I", "-S"]
        arguments = [
            *python,
            str(WARDEN),
            str(os.getpid()),
            str(self.folder.parent),
            *python,
            str(INSIDE),
            str(setup),
        ]
        # Not leashed: on the owner's death the warden has to clear up, so it watches for that itself.
        warden = Process(Command("warden", arguments, self.folder / "warden.log", {}, leashed=False))
        self._warden = warden
        ready = self.folder / "ready"

        def is_ready() -> bool:
            warden.require_alive()
            return ready.exists()

        wait_until(is_ready, "the node's namespaces", READY_TIMEOUT_SECONDS, POLL_SECONDS)
        self.pid = int(ready.read_text())

    def stop(self) -> None:
        """End everything inside and wait until it is gone. Raises StartFailed when the clearing up failed."""
        if self._warden is None:
            return
        warden, self._warden = self._warden, None
        warden.terminate(END_TIMEOUT_SECONDS)
        tail = warden.log_tail()
        if "still holds processes" in tail:
            raise StartFailed(f"the node was not cleared up: {tail}")

    def enter(self, arguments: Sequence[str]) -> list[str]:
        """The command line that runs a program inside, in the caller's working folder."""
        kinds = ("--mount", "--net", "--pid", "--ipc", "--uts")
        return [_tool("nsenter"), f"--target={self.pid}", *kinds, f"--wd={Path.cwd()}", "--", *arguments]


def _tool(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise StartFailed(f"{name} is not installed")
    return found
