"""What the kernel says where NVML cannot be used or counts too few cards.

A machine without NVIDIA cards, a card without its driver, a container without it, a card that fell off the bus.
The root of a file system and what NVML said enter, a SourceError that says what to do, or lost cards, leave. No
NVML here.
"""

from collections.abc import Iterable
from pathlib import Path

from vgpu.agent.nvlink import comparable_bus_id
from vgpu.agent.source import CardSample, LostCard, NothingToRead
from vgpu.errors import SourceError

NVIDIA_VENDOR = "0x10de"
NVIDIA_DRIVER = "nvidia"
UNCOUNTED = "it is on the PCI bus and the driver does not count it"
DISPLAY_CLASS = "0x03"
"""PCI base class of graphics and 3D controllers; NVIDIA also makes bridges, sound and network devices."""


def has_device_files(root: Path) -> bool:
    """Did the driver make its files in /dev? A privileged container sees those of its node."""
    return any(root.glob("dev/nvidia*"))


def has_pci_card(root: Path) -> bool:
    """Is any NVIDIA card on the PCI bus? The kernel shows the node's bus in every container."""
    return any(
        _line(device / "vendor") == NVIDIA_VENDOR and _line(device / "class").startswith(DISPLAY_CLASS)
        for device in root.glob("sys/bus/pci/devices/*")
    )


def silent_cards(root: Path, answering: Iterable[CardSample], told: int) -> tuple[LostCard, ...]:
    """Cards that the kernel gave to NVIDIA's driver and NVML leaves out of its count, as after a fall off the bus.

    `told` lost cards without an address explain as many; only if more are silent are the addresses needed. Cards
    handed through to a virtual machine belong to another driver and are not among them.
    """
    bound = [entry.name for entry in root.glob(f"sys/bus/pci/drivers/{NVIDIA_DRIVER}/*:*:*.*")]
    cards = [name for name in bound if _line(root / f"sys/bus/pci/devices/{name}/class").startswith(DISPLAY_CLASS)]
    known = {comparable_bus_id(card.pci_bus_id) for card in answering}
    silent = sorted(name for name in cards if comparable_bus_id(name) not in known)
    return tuple(LostCard(None, UNCOUNTED, "", name) for name in silent) if len(silent) > told else ()


def why_unusable(root: Path, said: str, *, library_missing: bool) -> SourceError:
    """What it means that NVML cannot be used, and what would help. `said`: NVML's own words."""
    if has_device_files(root) and library_missing:
        return SourceError(
            f"{said}, though /dev has the driver's files: give this pod the driver's libraries "
            "(runtimeClassName: nvidia, or nvidia as the default runtime)"
        )
    if has_device_files(root):
        return SourceError(f"NVML cannot be used: {said}")
    if has_pci_card(root):
        return SourceError(
            f"{said}: an NVIDIA card is on the PCI bus and its driver is not loaded: install it or load it"
        )
    return NothingToRead(
        f"no NVIDIA card on the PCI bus and no driver ({said}): nothing is published. On a node without GPUs this "
        "is right; label it policy.vgpu.dev/agent=off to run no agent there"
    )


def _line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
