"""What a container finds inside: HAMi-core's environment and mounts, for its cards. Pure.

Enters: the cards of one container, the node's cards, the node's settings, paths. Leaves: Edits. MiB and core
percent are per card. Limits are numbered as NVML counts inside the container: by PCI bus, whatever the order of
the list (libvgpu reads CUDA_DEVICE_MEMORY_LIMIT_<i> by that number; a missing or 0 limit is no limit at all).
Limits follow what the pod asked for, not whether it is alone: `whole` means that nobody else is on the card, which
holds for a card without an amount of memory as well as for one with an amount and all cores. A container with all
memory and no limit on cores has nothing to be held to: no limits, no library.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vgpu.agent.identity.port import CardNow, Mount
from vgpu.api.assignment import AssignedCardModel
from vgpu.units import CORES_PER_CARD

LIBRARY = "/usr/local/vgpu/libvgpu.so"
PRELOAD = "/etc/ld.so.preload"
CACHE_FOLDER = "/tmp/vgpu"
LOCK_FOLDER = "/tmp/vgpulock"
CONTROL_DEVICES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
TRUE_WORDS = frozenset({"1", "t", "T", "true", "True", "TRUE"})


@dataclass(frozen=True, slots=True)
class Paths:
    """Where things lie on the node. `library` "" = nothing is mounted: limits are told, not held."""

    library: str
    preload: str
    cache_folder: str
    """The container's own folder."""
    lock_folder: str = LOCK_FOLDER


@dataclass(frozen=True, slots=True)
class Rules:
    """`oversubscribed`: cards promise more memory than they have. `device_files`: see NodeSettings.card_files."""

    oversubscribed: bool = False
    device_files: bool = False


@dataclass(frozen=True, slots=True)
class Edits:
    """What is added to one container."""

    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Subject:
    """One container: its answer's nonce, its cards, and what its pod's spec says of libvgpu."""

    nonce: str
    cards: Sequence[AssignedCardModel]
    control_off: bool = False
    priority: str = ""


def needs_limits(given: Sequence[AssignedCardModel], cards: Mapping[str, CardNow]) -> bool:
    """Is there anything to hold the container to? Every card must be among `cards`."""
    return any(_limits_cores(card) or _limits_memory(card, cards[card.uuid]) for card in given)


def edits_for(subject: Subject, cards: Mapping[str, CardNow], paths: Paths, rules: Rules) -> Edits:
    """Environment, mounts and device files of one container. Every card must be among `cards`."""
    ordered = sorted(subject.cards, key=lambda card: cards[card.uuid].index)
    env = {"NVIDIA_VISIBLE_DEVICES": ",".join(card.uuid for card in ordered)}
    mounts: tuple[Mount, ...] = ()
    if needs_limits(ordered, cards):
        env |= _limits(ordered, cards)
        env["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = f"{CACHE_FOLDER}/{subject.nonce}.cache"
        if rules.oversubscribed:
            env["CUDA_OVERSUBSCRIBE"] = "true"
        if subject.priority:
            env["CUDA_TASK_PRIORITY"] = subject.priority
        mounts = _mounts(paths, control_off=subject.control_off) if paths.library else ()
    devices = _devices([cards[card.uuid] for card in ordered]) if rules.device_files else ()
    return Edits(env, mounts, devices)


def _limits(ordered: Sequence[AssignedCardModel], cards: Mapping[str, CardNow]) -> dict[str, str]:
    env = {
        f"CUDA_DEVICE_MEMORY_LIMIT_{number}": f"{card.memory_mib}m"
        for number, card in enumerate(ordered)
        if _limits_memory(card, cards[card.uuid])
    }
    first = ordered[0]  # a request has one number of cores for all its cards
    return env | ({"CUDA_DEVICE_SM_LIMIT": str(first.cores)} if _limits_cores(first) else {})


def _limits_cores(card: AssignedCardModel) -> bool:
    """0 is no reservation, and all cores are no limit."""
    return 0 < card.cores < CORES_PER_CARD


def _limits_memory(card: AssignedCardModel, now: CardNow) -> bool:
    """A whole card with fewer than all cores was asked for without memory, or with all of it: only then is it
    whole. With all cores it is whole whatever the memory."""
    return not card.whole or (card.cores >= CORES_PER_CARD and card.memory_mib < now.memory_mib)


def _mounts(paths: Paths, *, control_off: bool) -> tuple[Mount, ...]:
    mounts = (
        Mount(paths.library, LIBRARY),
        Mount(paths.cache_folder, CACHE_FOLDER, read_only=False),
        Mount(paths.lock_folder, LOCK_FOLDER, read_only=False),
    )
    return mounts if control_off else (*mounts, Mount(paths.preload, PRELOAD))


def _devices(cards: Sequence[CardNow]) -> tuple[str, ...]:
    """A card's file is named by its minor number, which need not be its index."""
    own = tuple(f"/dev/nvidia{card.minor}" for card in cards if card.minor is not None)
    return (*own, *CONTROL_DEVICES)
