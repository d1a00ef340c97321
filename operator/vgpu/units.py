"""The only conversions between units. Everything inside counts in integers: MiB, core percent, thousandths."""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from vgpu.errors import MalformedObject

CORES_PER_CARD = 100
"""A card has 100 cores: one core is one percent of its compute."""

MAX_COUNT: Final = 2**53
"""The largest whole amount that is read; beyond it JSON readers lose digits, and no card is near it."""

_SUFFIXES: Final = {
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30),
    "Ti": Fraction(2**40), "Pi": Fraction(2**50), "Ei": Fraction(2**60),
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9),
    "T": Fraction(10**12), "P": Fraction(10**15), "E": Fraction(10**18),
}  # fmt: skip
_QUANTITY: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    r"(?:[eE](?P<exponent>[+-]?[0-9]+)|(?P<suffix>[KMGTPE]i|[numkMGTPE])?)"
)
_LONGEST_QUANTITY: Final = 64
_LARGEST_EXPONENT: Final = 64
_LARGEST_BITS: Final = 256


def parse_quantity(text: str | int) -> Fraction:
    """The exact value of a Kubernetes quantity: "1500m", "1.5Gi", "1e3", "1k" (the API server's form of "1000").

    Sign, decimals, binary suffixes (Ki..Ei), decimal suffixes (n, u, m, k, M..E) and exponents (e or E).
    Nothing is rounded or capped. Raises MalformedObject for everything else, and, before any arithmetic, for
    text over 64 characters and exponents beyond +-64.
    """
    if isinstance(text, int) and not isinstance(text, bool) and text.bit_length() <= _LARGEST_BITS:
        return Fraction(text)
    if not isinstance(text, str) or len(text) > _LONGEST_QUANTITY:
        raise MalformedObject("is no quantity: expected a number such as 4, 8k or 1.5Gi, in at most 64 characters")
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise MalformedObject(f"{text!r} is no quantity: expected a number such as 4, 8k or 1.5Gi, without spaces")
    number, exponent = Fraction(match["number"]), match["exponent"]
    if exponent is None:
        return number * _SUFFIXES[match["suffix"] or ""]
    if abs(int(exponent)) > _LARGEST_EXPONENT:
        raise MalformedObject(f"{text!r} has an exponent beyond {_LARGEST_EXPONENT}")
    return number * Fraction(10) ** int(exponent)


@lru_cache(maxsize=4096, typed=True)  # a cluster's pods ask for a few hundred different amounts
def parse_whole(text: str | int) -> int:
    """A quantity that is a whole number within +-MAX_COUNT. Raises MalformedObject that says what was given."""
    value = parse_quantity(text)
    if value.denominator != 1:
        raise MalformedObject(f"{text!r} is not a whole number")
    if abs(value) > MAX_COUNT:
        raise MalformedObject(f"{text!r} is beyond what can be counted ({MAX_COUNT})")
    return int(value)


def parse_count(text: str | int) -> int:
    """A quantity that is a whole number from 0 to MAX_COUNT. Raises MalformedObject that says what was given."""
    value = parse_whole(text)
    if value < 0:
        raise MalformedObject(f"{text!r} is negative")
    return value


def memory_mib_from_percent(card_memory_mib: int, percent: int) -> int:
    """MiB of `percent` (1..100) of a card: max(1, floor(card MiB x percent / 100)), architecture.md 3."""
    return max(1, card_memory_mib * percent // 100)


def share_thousandths(memory_mib: int, card_memory_mib: int, cores: int, *, alone: bool) -> int:
    """A holder's share of its card in thousandths: ceil(1000 x max(memory share, core share)), 1000 if alone."""
    if alone:
        return 1000
    share = max(Fraction(memory_mib, max(1, card_memory_mib)), Fraction(cores, CORES_PER_CARD))
    return -(-share.numerator * 1000 // share.denominator)


def bytes_to_mib(count: int) -> int:
    """Whole MiB (2**20 bytes) in `count` bytes, rounded down."""
    return count // 2**20
