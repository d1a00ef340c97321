"""Reading and writing what HAMi, Volcano and the old volcano-dp keep on pods and nodes. No I/O."""

from vgpu.compat.assignments import asks_volcano_dp, read_legacy
from vgpu.compat.register import Register, RegisteredCard, read_registers
from vgpu.compat.write import compat_annotations

__all__ = ["Register", "RegisteredCard", "asks_volcano_dp", "compat_annotations", "read_legacy", "read_registers"]
