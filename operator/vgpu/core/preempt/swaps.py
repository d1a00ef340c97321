"""Notices that two workloads evict each other again and again, and holds them apart (preemption.md 4.3).

Enter: evictions that were made, now. Leaves: whether a pair is frozen. By the rule of ranks this cannot happen:
when it does, there is a bug or a second scheduler (S78).
"""

from collections.abc import Iterable
from dataclasses import dataclass

MOST_SWAPS = 3
"""Turns: the first one goes, comes back at the cost of the other, and is to go again."""
WINDOW_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Swap:
    """One workload gave way to another; both by the uid of their owner, which outlives their pods."""

    preemptor: str
    victim: str
    seconds: int


def frozen_until(swaps: Iterable[Swap], one: str, other: str, now_seconds: int) -> int | None:
    """Until when these two may not evict each other, or None when they may.

    Only turns count: one gives way to the other that gave way to it. Where one alone evicts, several times or for
    the same pod, its plans came to nothing or it grows at the other's cost; the ends of plans make it rest.
    """
    pair = {one, other}
    ours = [swap for swap in recent(swaps, now_seconds) if {swap.preemptor, swap.victim} == pair]
    ours.sort(key=lambda swap: swap.seconds)
    turns = [swap for place, swap in enumerate(ours) if not place or swap.preemptor != ours[place - 1].preemptor]
    return turns[-MOST_SWAPS].seconds + WINDOW_SECONDS if len(turns) >= MOST_SWAPS else None


def recent(swaps: Iterable[Swap], now_seconds: int) -> tuple[Swap, ...]:
    """What is still worth knowing."""
    return tuple(swap for swap in swaps if swap.seconds > now_seconds - WINDOW_SECONDS)
