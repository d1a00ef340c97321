"""One entry of HAMi's and Volcano's `nodeconfig` (config.json of their device plugins), as node settings.

Keys that concern only their own plugin (log level, topology, preferred allocation, MIG strategy) are accepted
and have no effect here. 0 and null mean unset, as they do there. Keys and values: HAMi docs and
volcano-vgpu-device-plugin doc/config.md.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator


class FilterDevices(BaseModel):
    """Cards that are left alone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uuid: tuple[str, ...] | None = None
    index: tuple[int, ...] | None = None


class HamiNode(BaseModel):
    """One entry of the list."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    operatingmode: Literal["", "hami-core", "mig"] | None = None
    devicememoryscaling: float | None = Field(None, ge=0, le=10)
    devicecorescaling: float | None = None
    devicesplitcount: int | None = Field(None, ge=0)
    preconfigureddevicememory: int | None = Field(None, ge=0)
    filterdevices: FilterDevices | None = None
    migstrategy: str | None = None
    libcudaloglevel: int | None = None
    enablenumatopology: bool | None = None
    enablegetpreferredallocation: bool | None = None

    @field_validator("devicecorescaling")
    @classmethod
    def _cores_are_never_scaled(cls, value: float | None) -> float | None:
        if value not in (None, 0, 1):
            raise ValueError("is not supported, a card has 100 cores: set it to 1 or leave it out")
        return value

    def settings(self) -> dict[str, Any]:
        """The same in our own keys; what is unset there is left out."""
        found: dict[str, Any] = {}
        if self.devicesplitcount:
            found["slots"] = self.devicesplitcount
        if self.devicememoryscaling:
            found["memoryScalePercent"] = round(self.devicememoryscaling * 100)
        if self.preconfigureddevicememory:
            found["preconfiguredMemoryMiB"] = self.preconfigureddevicememory
        if self.operatingmode == "mig":
            found["mode"] = "mig"
        if self.filterdevices:
            excluded = self.filterdevices
            found["excludeCards"] = {"uuids": excluded.uuid or (), "indexes": excluded.index or ()}
        return found
