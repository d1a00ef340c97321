"""Quantity text -> integers, for the amounts that only guide (CPU, memory, slots of a node).

A quantity that cannot be read counts as 0 here: a node then offers nothing of it, which is the safe side.
What a pod asks of cards goes through core.presets instead, which refuses by name.
"""

from collections.abc import Mapping
from functools import lru_cache

from vgpu.errors import MalformedObject
from vgpu.units import bytes_to_mib, parse_quantity

_LARGEST = 2**62
"""Above what Kubernetes can carry (int64); a larger number is someone's mistake and is capped."""


@lru_cache(maxsize=8192)
def whole(text: str) -> int:
    """`text` rounded down to a whole number within 0..2**62; 0 when it cannot be read."""
    return _scaled(text, 1)


@lru_cache(maxsize=8192)
def millis(text: str) -> int:
    """Thousandths of `text` (CPU: millicores), rounded down, within 0..2**62; 0 when unreadable."""
    return _scaled(text, 1000)


def mib(text: str) -> int:
    """Whole MiB of a quantity in bytes; 0 when unreadable."""
    return bytes_to_mib(whole(text))


def amount(amounts: Mapping[str, str] | None, name: str) -> str:
    """The quantity text of `name`, "0" when absent."""
    return "0" if amounts is None else amounts.get(name, "0")


def _scaled(text: str, factor: int) -> int:
    try:
        return max(0, min(_LARGEST, int(parse_quantity(text) * factor)))
    except MalformedObject:
        return 0
