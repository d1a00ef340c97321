"""What it means that NVML cannot be used: nothing wrong on a CPU node, what to do elsewhere (R35)."""

from pathlib import Path

import pytest

from vgpu.agent.driver import why_unusable
from vgpu.agent.source import NothingToRead


def pci_device(root: Path, address: str, vendor: str, kind: str) -> None:
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text(f"{kind}\n")


def device_file(root: Path) -> None:
    (root / "dev").mkdir()
    (root / "dev/nvidiactl").touch()


@pytest.mark.parametrize("missing", [True, False])
def test_a_machine_without_cards_has_nothing_to_read(tmp_path: Path, missing: bool) -> None:
    pci_device(tmp_path, "0000:00:02.0", "0x8086", "0x030000")
    pci_device(tmp_path, "0000:00:03.0", "0x10de", "0x068000")  # a bridge of NVIDIA's
    error = why_unusable(tmp_path, "NVML Shared Library Not Found", library_missing=missing)
    assert isinstance(error, NothingToRead)
    assert "nothing is published" in str(error)


@pytest.mark.parametrize("missing", [True, False])
def test_a_card_without_its_driver_is_an_error_that_says_so(tmp_path: Path, missing: bool) -> None:
    pci_device(tmp_path, "0000:10:00.0", "0x10de", "0x030200")
    error = why_unusable(tmp_path, "Driver Not Loaded", library_missing=missing)
    assert not isinstance(error, NothingToRead)
    assert "its driver is not loaded" in str(error)


def test_a_container_without_the_drivers_library_is_an_error_that_names_the_runtime(tmp_path: Path) -> None:
    device_file(tmp_path)
    error = why_unusable(tmp_path, "NVML Shared Library Not Found", library_missing=True)
    assert not isinstance(error, NothingToRead)
    assert "runtimeClassName: nvidia" in str(error)


def test_a_driver_that_fails_is_told_in_its_own_words(tmp_path: Path) -> None:
    device_file(tmp_path)
    error = why_unusable(tmp_path, "Driver/library version mismatch", library_missing=False)
    assert not isinstance(error, NothingToRead)
    assert str(error) == "NVML cannot be used: Driver/library version mismatch"
