"""The NVML source against a library with NVML's own binary interface, built here and driven by a file."""

import asyncio
import ctypes
from collections.abc import AsyncIterator
from pathlib import Path

import pynvml
import pytest

from vgpu.agent.nvml import NvmlSource
from vgpu.agent.source import CardReading, EventKind, HealthEvent, NothingToRead
from vgpu.core.facts import CardMode
from vgpu.errors import SourceError

XID, SINGLE, DOUBLE = 8, 1, 2


@pytest.fixture(scope="session")
def library(standin_library: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(standin_library))


class Machine:
    """What the stand-in plays."""

    def __init__(self, path: Path, library: ctypes.CDLL) -> None:
        self.path, self.library = path, library
        self.head = "driver 550.54.15\ncuda 12040\n"
        self.cards = [card(index) for index in range(2)]
        self.rest = ""
        self.play()

    def play(self) -> None:
        lines = "".join(f"card {' '.join(f'{k}={v}' for k, v in fields.items())}\n" for fields in self.cards)
        new = self.path.with_suffix(".new")
        new.write_text(self.head + lines + self.rest)
        new.rename(self.path)


def card(index: int, **fields: object) -> dict[str, object]:
    bus = f"00000000:{index + 16:02X}:00.0"
    usual = {"uuid": f"GPU-{index}", "name": "NVIDIA_A100", "memory_mib": 81920, "minor": index, "bus": bus}
    return usual | {"action": 0} | fields


@pytest.fixture
def machine(tmp_path: Path, library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> Machine:
    library.standin_reset()
    monkeypatch.setenv("VGPU_NVML_STANDIN", str(tmp_path / "machine"))
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return Machine(tmp_path / "machine", library)


@pytest.fixture
async def source(machine: Machine, tmp_path: Path) -> AsyncIterator[NvmlSource]:
    found = NvmlSource(root=tmp_path, read_seconds=5, wait_milliseconds=10, pause_seconds=0.01)
    yield found
    await found.close()


async def read(source: NvmlSource) -> CardReading:
    reading = await source.read()
    assert reading is not None
    return reading


async def test_a_reading_has_everything_of_each_card(machine: Machine, source: NvmlSource, tmp_path: Path) -> None:
    numa = tmp_path / "sys/bus/pci/devices/0000:10:00.0"
    numa.mkdir(parents=True)
    (numa / "numa_node").write_text("1\n")
    boot = tmp_path / "proc/sys/kernel/random"
    boot.mkdir(parents=True)
    (boot / "boot_id").write_text("b-1\n")
    reading = await read(source)
    assert (reading.driver_version, reading.cuda_version, reading.boot_id) == ("550.54.15", "12.4", "b-1")
    first, second = reading.cards
    assert (first.uuid, first.index, first.minor, first.model) == ("GPU-0", 0, 0, "NVIDIA A100")
    assert (first.memory_mib, first.pci_bus_id, first.mode) == (81920, "00000000:10:00.0", CardMode.SHARED)
    assert (first.numa_node, second.numa_node) == (1, None)
    assert first.confirmed_well
    assert reading.lost == ()
    assert machine.library.standin_users() == 0


async def test_r38_a_lost_card_does_not_take_the_others(machine: Machine, source: NvmlSource) -> None:
    machine.cards = [card(index, **({"error": 15} if index == 3 else {})) for index in range(8)]
    machine.play()
    reading = await read(source)
    assert [found.index for found in reading.cards] == [0, 1, 2, 4, 5, 6, 7]
    assert [(lost.index, lost.reason, lost.uuid) for lost in reading.lost] == [(3, "GPU is lost", "")]


def on_the_bus(root: Path, driver: str, *buses: str, kind: str = "0x030200") -> None:
    """The kernel's view: devices and the driver that they are given to."""
    for bus in buses:
        device = root / "sys/bus/pci/devices" / bus
        device.mkdir(parents=True)
        (device / "class").write_text(f"{kind}\n")
        drivers = root / "sys/bus/pci/drivers" / driver
        drivers.mkdir(parents=True, exist_ok=True)
        (drivers / bus).symlink_to(device)


async def test_r38_a_card_that_fell_off_the_bus_is_lost_though_nvml_counts_only_the_others(
    machine: Machine, source: NvmlSource, tmp_path: Path
) -> None:
    on_the_bus(tmp_path, "nvidia", "0000:10:00.0", "0000:11:00.0", "0000:12:00.0")
    on_the_bus(tmp_path, "vfio-pci", "0000:20:00.0")
    on_the_bus(tmp_path, "nvidia", "0000:12:00.1", kind="0x040300")
    reading = await read(source)
    assert len(reading.cards) == 2
    assert [(lost.index, lost.pci_bus_id) for lost in reading.lost] == [(None, "0000:12:00.0")]
    assert "the driver does not count it" in reading.lost[0].reason


async def test_a_lost_card_that_nvml_counts_is_told_once(
    machine: Machine, source: NvmlSource, tmp_path: Path
) -> None:
    on_the_bus(tmp_path, "nvidia", "0000:10:00.0", "0000:11:00.0")
    machine.cards[1]["error"] = 15
    machine.play()
    assert [(lost.index, lost.pci_bus_id) for lost in (await read(source)).lost] == [(1, "")]


async def test_r35_a_driver_that_counts_no_card_has_not_said_that_there_is_none(
    machine: Machine, source: NvmlSource, tmp_path: Path
) -> None:
    on_the_bus(tmp_path, "nvidia", "0000:10:00.0", "0000:11:00.0")
    machine.cards = []
    machine.play()
    reading = await read(source)
    assert reading.cards == ()
    assert [lost.pci_bus_id for lost in reading.lost] == ["0000:10:00.0", "0000:11:00.0"]


async def test_a_card_that_fails_halfway_is_lost_by_uuid(machine: Machine, source: NvmlSource) -> None:
    machine.cards[1]["broken"] = 16
    machine.play()
    reading = await read(source)
    assert [(lost.uuid, lost.reason) for lost in reading.lost] == [("GPU-1", "GPU requires restart")]


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"action": 1}, "the driver asks for a GPU reset"),
        ({"action": 4}, "the driver asks for drain and reset"),
        ({"action": 3}, ""),
        ({"remap_failed": 1}, "row remapping failed"),
    ],
)
async def test_what_the_driver_says_of_a_card_is_its_problem(
    machine: Machine, source: NvmlSource, fields: dict[str, object], want: str
) -> None:
    machine.cards[0] |= fields
    machine.play()
    first, second = (await read(source)).cards
    assert (first.problem, second.problem) == (want, "")


async def test_an_old_driver_cannot_confirm_that_a_card_is_well(machine: Machine, source: NvmlSource) -> None:
    machine.cards[0]["action"] = -1
    machine.play()
    assert [found.confirmed_well for found in (await read(source)).cards] == [False, True]


async def test_mig_cards_and_cards_of_unknown_size_are_read(machine: Machine, source: NvmlSource) -> None:
    machine.cards[0]["mig"] = 1
    machine.cards[1]["memory_mib"] = 0
    machine.play()
    first, second = (await read(source)).cards
    assert (first.mode, second.memory_mib) == (CardMode.MIG, None)


async def test_nvlink_peers_directly_and_by_a_switch(machine: Machine, source: NvmlSource) -> None:
    machine.cards = [
        card(0, links="0000:11:00.0"), card(1), card(2, links="switch"), card(3, links="switch,switch"),
    ]  # fmt: skip
    machine.play()
    peers = {found.uuid: set(found.links) for found in (await read(source)).cards}
    assert peers == {"GPU-0": {"GPU-1"}, "GPU-1": set(), "GPU-2": {"GPU-3"}, "GPU-3": {"GPU-2"}}


@pytest.mark.parametrize(
    ("head", "want"),
    [("init 9\n", "NVML cannot be used: Driver Not Loaded"), ("count 999\n", "NVML failed: Unknown Error")],
)
async def test_nvml_itself_failing_is_a_source_error(
    machine: Machine, source: NvmlSource, tmp_path: Path, head: str, want: str
) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    machine.head = head
    machine.play()
    with pytest.raises(SourceError, match=want):
        await source.read()
    machine.head = ""
    machine.play()
    assert len((await read(source)).cards) == 2


async def test_a_machine_without_the_library_is_a_source_error(
    source: NvmlSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> None:
        raise OSError("no such library")

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", missing)
    with pytest.raises(NothingToRead, match="NVML Shared Library Not Found"):
        await source.read()
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    with pytest.raises(SourceError, match="NVML Shared Library Not Found") as raised:
        await source.read()
    assert not isinstance(raised.value, NothingToRead)


async def test_a_hanging_driver_is_a_source_error_and_readings_go_on_after_it(
    machine: Machine, tmp_path: Path
) -> None:
    machine.rest = "hang 1\n"
    machine.play()
    source = NvmlSource(root=tmp_path, read_seconds=0.02)
    for _ in range(2):  # the second finds the first still hanging, and says the same: one readError, one write
        with pytest.raises(SourceError, match=r"^the NVML library does not answer$"):
            await source.read()
    machine.rest = ""
    machine.play()
    async with asyncio.timeout(10):
        while True:
            try:
                reading = await source.read()
            except SourceError:
                await asyncio.sleep(0.01)
                continue
            break
    assert reading is not None
    assert len(reading.cards) == 2
    await source.close()


async def test_events_name_their_card_and_kind(machine: Machine, source: NvmlSource) -> None:
    machine.rest = f"event 1 {XID} 79\nevent 0 {DOUBLE} 0\nevent 0 {SINGLE} 0\n"
    machine.play()
    events = source.health_events()
    assert [await anext(events) for _ in range(3)] == [
        HealthEvent("GPU-1", 79, EventKind.XID),
        HealthEvent("GPU-0", None, EventKind.ECC_DOUBLE),
        HealthEvent("GPU-0", None, EventKind.ECC_SINGLE),
    ]


async def test_a_card_lost_at_the_start_does_not_keep_others_from_reporting(
    machine: Machine, source: NvmlSource
) -> None:
    machine.cards[0]["error"] = 15
    machine.rest = f"event 1 {XID} 48\n"
    machine.play()
    assert await anext(source.health_events()) == HealthEvent("GPU-1", 48, EventKind.XID)


async def test_r40_failed_waiting_blames_no_card_and_goes_on(machine: Machine, source: NvmlSource) -> None:
    machine.rest = "wait 999\n"
    machine.play()
    events = source.health_events()
    assert await anext(events) == HealthEvent(None, None, EventKind.CHANGED)
    machine.rest = f"event 0 {XID} 31\n"
    machine.play()
    while (event := await anext(events)).kind is EventKind.CHANGED:
        pass
    assert event == HealthEvent("GPU-0", 31, EventKind.XID)


async def test_a_lost_card_makes_the_event_thread_let_go_of_nvml(machine: Machine, source: NvmlSource) -> None:
    """Only when nobody uses NVML is it really started anew, and a card that came back seen."""
    machine.rest = f"event 1 {XID} 79\n"
    machine.play()
    events = source.health_events()
    await anext(events)
    assert machine.library.standin_users() == 1
    machine.cards[0]["error"] = 15
    machine.play()
    await source.read()
    machine.head, machine.rest = "init 9\n", machine.rest + f"event 1 {XID} 74\n"
    machine.play()
    assert await anext(events) == HealthEvent(None, None, EventKind.CHANGED)
    assert machine.library.standin_users() == 0
