"""Which source of cards an option means. The only place that leads to the driver: what imports this can hang."""

from pathlib import Path

from vgpu.agent.fixed import FixedSource
from vgpu.agent.none import NoneSource
from vgpu.agent.source import GpuSource
from vgpu.errors import ConfigurationError


def make_source(kind: str, node: str, fixed_file: Path | None) -> GpuSource:
    """The source that --source names. Raises ConfigurationError."""
    match kind:
        case "none":
            return NoneSource()
        case "fixed" if fixed_file is not None:
            return FixedSource(fixed_file, node)
        case "fixed":
            raise ConfigurationError("--source fixed needs --fixed-file with the cards (or VGPU_AGENT_FIXED_FILE)")
        case "nvml":
            # Only a node with cards needs NVML's module.
            from vgpu.agent.nvml import NvmlSource  # noqa: PLC0415

            return NvmlSource()
        case _:
            raise ConfigurationError(f"--source {kind}: unknown; known are nvml, fixed, none")
