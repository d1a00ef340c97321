"""Notices that two workloads evict each other again and again, and holds them apart (preemption.md 4.3).

Enter: evictions that were made, now. Leaves: whether a pair is frozen. By the rule of ranks this cannot happen:
when it does, there is a bug or a second scheduler (S78).
"""

from collections.abc import Iterable
from dataclasses import dataclass

MOST_SWAPS = 3
WINDOW_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Swap:
    """One workload gave way to another; both by the uid of their owner, which outlives their pods.

    `pod`: uid of the pod for which it went; `plan`: NS/NAME of the plan. "" = not known.
    """

    preemptor: str
    victim: str
    seconds: int
    pod: str = ""
    plan: str = ""

    def goes_on(self, before: "Swap") -> bool:
        """True when it only continues what went `before` it: another victim of one plan, or the next pod of a
        workload that grows at the other's cost. The same pod that evicts once more has got nothing from it."""
        if self.preemptor != before.preemptor:
            return False
        return self.pod != before.pod or bool(self.plan and self.plan == before.plan)


def frozen_until(swaps: Iterable[Swap], one: str, other: str, now_seconds: int) -> int | None:
    """Until when these two may not evict each other, or None when they may."""
    pair = {one, other}
    ours = [swap for swap in recent(swaps, now_seconds) if {swap.preemptor, swap.victim} == pair]
    ours.sort(key=lambda swap: swap.seconds)
    moments = [swap.seconds for place, swap in enumerate(ours) if not place or not swap.goes_on(ours[place - 1])]
    return moments[-MOST_SWAPS] + WINDOW_SECONDS if len(moments) >= MOST_SWAPS else None


def recent(swaps: Iterable[Swap], now_seconds: int) -> tuple[Swap, ...]:
    """What is still worth knowing."""
    return tuple(swap for swap in swaps if swap.seconds > now_seconds - WINDOW_SECONDS)
