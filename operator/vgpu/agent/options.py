"""What the agent's processes are told by their environment; a command line sets the same variables.

Variables enter, AgentOptions leave, and back. Whether what they say is right is decided where it is used.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

VARIABLES: Final = {
    "node": "NODE_NAME",
    "source": "VGPU_AGENT_SOURCE",
    "fixed_file": "VGPU_AGENT_FIXED_FILE",
    "config": "VGPU_AGENT_CONFIG",
    "kubeconfig": "KUBECONFIG",
    "log_level": "VGPU_LOG_LEVEL",
    "state_folder": "VGPU_AGENT_STATE_FOLDER",
    "plugins_folder": "VGPU_AGENT_PLUGINS_FOLDER",
    "pod_resources": "VGPU_AGENT_POD_RESOURCES",
    "control_groups": "VGPU_AGENT_CONTROL_GROUPS",
}
"""The variable of each option."""


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """What the command line and the environment say."""

    node: str = ""
    source: str = "nvml"
    fixed_file: Path | None = None
    config: Path | None = None
    kubeconfig: Path | None = None
    log_level: str = "info"
    state_folder: Path = Path("/var/lib/vgpu/agent")
    """Kept over restarts: what identity needs, and the socket between reader and server."""
    plugins_folder: Path = Path("/var/lib/kubelet/device-plugins")
    """Where kubelet and its plugins have their sockets."""
    pod_resources: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    """Where kubelet tells who holds what."""
    control_groups: Path = Path("/sys/fs/cgroup")
    """Where the kernel shows which pods have processes; the whole node's, not those of this container."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "AgentOptions":
        """Read them; an empty variable counts as absent."""
        given = {name: environment[key] for name, key in VARIABLES.items() if environment.get(key)}
        texts = {"node", "source", "log_level"}
        return cls(**{name: value if name in texts else Path(value) for name, value in given.items()})  # type: ignore[arg-type]  # a Path exactly where a field is one

    def to_environment(self) -> dict[str, str]:
        """The variables that say this."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {VARIABLES[name]: str(value) for name, value in values.items() if value is not None}
