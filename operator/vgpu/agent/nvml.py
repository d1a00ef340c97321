"""Cards by NVML. The only file that knows pynvml; nothing of it leaves: values and SourceError do.

NVML calls block and may hang, so they run in worker threads with a time limit: one for readings, one that waits
for events. One failing card is an entry of `lost`; only a failure of NVML itself is a SourceError. Bytes become
MiB here. NVML is initialised once more for each reading (it counts its users), so that after the event thread has
let go of it too, a driver that was reloaded or a card that came back is seen.
"""

import asyncio
import contextlib
import ctypes
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml

from vgpu.agent.driver import silent_cards, why_unusable
from vgpu.agent.nvlink import peers_of
from vgpu.agent.source import CardReading, CardSample, EventKind, HealthEvent, LostCard, NothingToRead
from vgpu.agent.worker import Worker
from vgpu.core.facts import CardMode
from vgpu.errors import SourceError
from vgpu.units import bytes_to_mib

LOG = logging.getLogger(__name__)
READ_SECONDS = 30.0
WAIT_MILLISECONDS = 5000
PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 60.0
REOPEN_SECONDS = 300.0
MAX_LINKS = 18
EVENT_KINDS = {
    pynvml.nvmlEventTypeXidCriticalError: EventKind.XID,
    pynvml.nvmlEventTypeDoubleBitEccError: EventKind.ECC_DOUBLE,
    pynvml.nvmlEventTypeSingleBitEccError: EventKind.ECC_SINGLE,
}
# Recovery actions that need the card empty. What only ends peer-to-peer traffic leaves it usable.
DUE_ACTIONS = {
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "a GPU reset",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "a reboot of the node",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "drain and reset",
    pynvml.NVML_GPU_RECOVERY_ACTION_BUS_RESET: "a bus reset",
    pynvml.NVML_GPU_RECOVERY_ACTION_SYSTEM_REBOOT: "a reboot of the system",
}
UNSUPPORTED = (
    pynvml.NVMLError_NotSupported,
    pynvml.NVMLError_FunctionNotFound,
    pynvml.NVMLError_InvalidArgument,
    pynvml.NVMLError_NoPermission,
)


def _init(root: Path) -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        missing = isinstance(error, pynvml.NVMLError_LibraryNotFound)
        raise why_unusable(root, str(error), library_missing=missing) from error


@contextlib.contextmanager
def _session(root: Path) -> Iterator[None]:
    _init(root)
    try:
        yield
    except pynvml.NVMLError as error:
        raise SourceError(f"NVML failed: {error}") from error
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _optional(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a card may not support is None. Any other error is the caller's."""
    try:
        return call(*arguments)
    except UNSUPPORTED:
        return None


def _text(value: Any) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)


def read_card(index: int, sysfs: Path) -> CardSample | LostCard:
    """Read one card; whatever goes wrong with it stays with it."""
    uuid = ""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
        memory = _optional(pynvml.nvmlDeviceGetMemoryInfo, handle)
        mig = _optional(pynvml.nvmlDeviceGetMigMode, handle)
        bus_id = _text(pynvml.nvmlDeviceGetPciInfo(handle).busId)
        action = _recovery_action(handle)
        return CardSample(
            uuid=uuid,
            index=index,
            model=_text(pynvml.nvmlDeviceGetName(handle)),
            memory_mib=bytes_to_mib(memory.total) if memory else None,
            minor=_optional(pynvml.nvmlDeviceGetMinorNumber, handle),
            pci_bus_id=bus_id,
            mode=CardMode.MIG if mig and mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE else CardMode.SHARED,
            numa_node=_numa_node(sysfs, bus_id),
            problem=_problem(handle, action),
            confirmed_well=action == pynvml.NVML_GPU_RECOVERY_ACTION_NONE,
        )
    except pynvml.NVMLError as error:
        return LostCard(index, str(error), uuid)


def _recovery_action(handle: Any) -> int | None:
    values = _optional(pynvml.nvmlDeviceGetFieldValues, handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    if not values or values[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    return int(values[0].value.uiVal)


def _problem(handle: Any, action: int | None) -> str:
    if action in DUE_ACTIONS:
        return f"the driver asks for {DUE_ACTIONS[action]}"
    remapped = _optional(pynvml.nvmlDeviceGetRemappedRows, handle)
    return "row remapping failed" if remapped and remapped[3] else ""


def _numa_node(sysfs: Path, bus_id: str) -> int | None:
    """NVML names the NUMA node of few machines; the kernel names it of all (-1: it has none)."""
    domain, _, rest = bus_id.lower().partition(":")
    try:
        node = int((sysfs / "bus/pci/devices" / f"{domain[-4:]}:{rest}" / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _active_links(index: int) -> Iterator[str]:
    """For each active link of a card: the bus id at its other end, "" for a switch."""
    with contextlib.suppress(pynvml.NVMLError):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        for link in range(MAX_LINKS):
            if not _optional(pynvml.nvmlDeviceGetNvLinkState, handle, link):
                continue
            kind = _optional(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
            if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                yield ""
            elif kind == pynvml.NVML_NVLINK_DEVICE_TYPE_GPU:
                yield _text(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)


class _EventSet:
    """NVML's event set over all cards that can report; made and used in the event thread only."""

    def __init__(self, root: Path) -> None:
        self._uuids: dict[int | None, str] = {}
        self._set = None
        _init(root)
        try:
            self._set = pynvml.nvmlEventSetCreate()
            self.cards = sum(self._register(index) for index in range(pynvml.nvmlDeviceGetCount()))
        except pynvml.NVMLError:
            self.close()
            raise

    def _register(self, index: int) -> bool:
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            self._uuids[_address(handle)] = _text(pynvml.nvmlDeviceGetUUID(handle))
            mask = sum(EVENT_KINDS) & (_optional(pynvml.nvmlDeviceGetSupportedEventTypes, handle) or 0)
            if mask:
                pynvml.nvmlDeviceRegisterEvents(handle, mask, self._set)
        except pynvml.NVMLError as error:
            LOG.warning("no events of card index=%d problem=%s", index, error)
            return False
        return bool(mask)

    def wait(self, milliseconds: int) -> HealthEvent | None:
        """The next event, or None when there was none in time."""
        try:
            data = pynvml.nvmlEventSetWait_v2(self._set, milliseconds)
        except pynvml.NVMLError_Timeout:
            return None
        kind = EVENT_KINDS.get(data.eventType, EventKind.CHANGED)
        xid = int(data.eventData) if kind is EventKind.XID else None
        return HealthEvent(self._uuids.get(_address(data.device)), xid, kind)

    def close(self) -> None:
        """Give the set and this user of NVML back."""
        with contextlib.suppress(pynvml.NVMLError):
            if self._set is not None:
                pynvml.nvmlEventSetFree(self._set)
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


class NvmlSource:
    """The cards of this machine."""

    recheck_seconds: float | None = 30.0

    def __init__(
        self,
        *,
        root: Path = Path("/"),
        read_seconds: float = READ_SECONDS,
        wait_milliseconds: int = WAIT_MILLISECONDS,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._root = root
        self._read_seconds = read_seconds
        self._wait_milliseconds = wait_milliseconds
        self._pause_seconds = pause_seconds
        self._readings = Worker("NVML library")
        self._waiting = Worker("NVML event wait")
        self._events: _EventSet | None = None
        self._reopen = False
        self._reopened_at = float("-inf")

    async def read(self) -> CardReading | None:
        """All cards now. Raises SourceError: NVML missing, failing, or silent for too long."""
        try:
            reading = await self._readings.run(self._read, self._read_seconds)
        except SourceError:
            self._ask_to_reopen()
            raise
        if reading.lost:
            self._ask_to_reopen()
        return reading

    async def health_events(self) -> AsyncIterator[HealthEvent]:
        """What NVML reports. A failure of the waiting blames no card: it is a reason to read."""
        failures = 0
        while True:
            try:
                event = await self._waiting.run(self._wait, self._wait_milliseconds / 1000 + self._read_seconds)
                failures = 0
            except SourceError as error:
                told = failures or isinstance(error, NothingToRead)  # the reading says that once
                LOG.log(logging.DEBUG if told else logging.WARNING, "no card events problem=%s", error)
                await asyncio.sleep(min(self._pause_seconds * 2**failures, LONGEST_PAUSE_SECONDS))
                failures = min(failures + 1, 10)
                event = HealthEvent(None, None, EventKind.CHANGED)
            if event is not None:
                yield event

    async def close(self) -> None:
        """End both threads after the calls that they are in."""
        self._readings.stop()
        self._waiting.stop()

    def _ask_to_reopen(self) -> None:
        now = time.monotonic()
        if now - self._reopened_at >= REOPEN_SECONDS:
            self._reopen, self._reopened_at = True, now

    def _read(self) -> CardReading:
        with _session(self._root):
            cuda = pynvml.nvmlSystemGetCudaDriverVersion()
            found = [read_card(index, self._root / "sys") for index in range(pynvml.nvmlDeviceGetCount())]
            cards = [card for card in found if isinstance(card, CardSample)]
            lost = [card for card in found if isinstance(card, LostCard)]
            links = {card.pci_bus_id: tuple(_active_links(card.index)) for card in cards}
            return CardReading(
                driver_version=_text(pynvml.nvmlSystemGetDriverVersion()),
                cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}",
                boot_id=self._boot_id(),
                cards=peers_of(cards, links),
                lost=(*lost, *silent_cards(self._root, cards, len(lost))),
            )

    def _boot_id(self) -> str:
        try:
            return (self._root / "proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return ""

    def _wait(self) -> HealthEvent | None:
        try:
            if self._reopen:
                self._reopen = False
                self._forget_events()
            if self._events is None:
                self._events = _EventSet(self._root)
            if self._events.cards == 0:
                time.sleep(self._wait_milliseconds / 1000)
                return None
            return self._events.wait(self._wait_milliseconds)
        except pynvml.NVMLError as error:
            self._forget_events()
            raise SourceError(f"NVML failed: {error}") from error

    def _forget_events(self) -> None:
        if self._events is not None:
            self._events.close()
            self._events = None
