"""Amounts against a queue's limits. A dimension that is not stated limits nothing and entitles to nothing.

Enters: Amounts and Limits. Leaves: yes or no, and words for people. May not live here: whose limits they are.
"""

from collections.abc import Sequence

from vgpu.core.preempt.facts import Amounts, Limits


def within(amounts: Amounts, limits: Limits) -> bool:
    """True when no stated dimension is exceeded."""
    return not any(limit is not None and have > limit for have, limit in _pairs(amounts, limits))


def exceeded(amounts: Amounts, limits: Limits) -> tuple[str, ...]:
    """Per stated dimension that is exceeded, in words: "5 cards of 4"."""
    return _words(amounts, limits, [limit is not None and have > limit for have, limit in _pairs(amounts, limits)])


def short_of(amounts: Amounts, limits: Limits) -> tuple[str, ...]:
    """Per stated dimension that is not reached, in words: "3 cards of 4"."""
    return _words(amounts, limits, [limit is not None and have < limit for have, limit in _pairs(amounts, limits)])


def names_any(amounts: Amounts, limits: Limits) -> bool:
    """True when something that is asked for is in a stated dimension."""
    return any(have > 0 and limit is not None for have, limit in _pairs(amounts, limits))


def leaves_any(limits: Limits) -> bool:
    """True when a stated dimension has something left."""
    return bool(limits.cards_thousandths or limits.memory_mib or limits.cores)


def reduced(limits: Limits, by: Amounts) -> Limits:
    """What is left of `limits`; it may become negative."""
    return Limits(
        None if limits.cards_thousandths is None else limits.cards_thousandths - by.cards_thousandths,
        None if limits.memory_mib is None else limits.memory_mib - by.memory_mib,
        None if limits.cores is None else limits.cores - by.cores,
    )


def where_given(limits: Limits, amounts: Amounts) -> Limits:
    """The limits of those dimensions only of which `amounts` has some."""
    return Limits(
        limits.cards_thousandths if amounts.cards_thousandths else None,
        limits.memory_mib if amounts.memory_mib else None,
        limits.cores if amounts.cores else None,
    )


def cards_words(thousandths: int) -> str:
    """Thousandths as people write cards: 1500 is "1.5", 4000 is "4"."""
    sign, whole, part = "-" if thousandths < 0 else "", abs(thousandths) // 1000, abs(thousandths) % 1000
    return f"{sign}{whole}.{part:03}".rstrip("0") if part else f"{sign}{whole}"


def _pairs(amounts: Amounts, limits: Limits) -> tuple[tuple[int, int | None], ...]:
    return (
        (amounts.cards_thousandths, limits.cards_thousandths),
        (amounts.memory_mib, limits.memory_mib),
        (amounts.cores, limits.cores),
    )


def _words(amounts: Amounts, limits: Limits, wanted: Sequence[bool]) -> tuple[str, ...]:
    if not any(wanted):
        return ()
    texts = (
        f"{cards_words(amounts.cards_thousandths)} cards of {cards_words(limits.cards_thousandths or 0)}",
        f"{amounts.memory_mib} MiB of {limits.memory_mib}",
        f"{amounts.cores} cores of {limits.cores}",
    )
    return tuple(text for text, is_wanted in zip(texts, wanted, strict=True) if is_wanted)
