"""Which workloads gave way to which in the last minutes, and the pairs that are held apart (preemption.md 4.3).

Enters: evictions that were accepted. Leaves: swaps of the pairs that are held apart; of all others nobody need
know. In memory only: a second belt, whose loss is harmless. May not live here: when a pair is held apart.
"""

from vgpu.core.preempt.swaps import Swap, frozen_until, recent

TIDY_AT = 1000
"""Pairs that are kept before the old ones are looked for."""


class SwapLog:
    """See the module. Moments are whole seconds of one clock."""

    def __init__(self) -> None:
        self._pairs: dict[frozenset[str], tuple[Swap, ...]] = {}
        self._apart: set[frozenset[str]] = set()
        self._tidy_at = TIDY_AT

    def note(self, swap: Swap) -> bool:
        """One gave way to the other. True when the two are held apart from now on."""
        pair = frozenset((swap.preemptor, swap.victim))
        self._pairs[pair] = (*recent(self._pairs.get(pair, ()), swap.seconds), swap)
        if len(self._pairs) > self._tidy_at:
            self._tidy(swap.seconds)
        before = pair in self._apart and self._is_apart(pair, swap.seconds)
        if not before and frozen_until(self._pairs[pair], swap.preemptor, swap.victim, swap.seconds) is not None:
            self._apart.add(pair)
            return True
        return False

    def apart(self, now_seconds: int) -> tuple[Swap, ...]:
        """Swaps of the pairs that are held apart now, always in one order."""
        self._apart = {pair for pair in self._apart if self._is_apart(pair, now_seconds)}
        ordered = sorted(self._apart, key=sorted)
        return tuple(swap for pair in ordered for swap in recent(self._pairs[pair], now_seconds))

    def _is_apart(self, pair: frozenset[str], now_seconds: int) -> bool:
        one, *other = sorted(pair)
        swaps = self._pairs.get(pair, ())
        return frozen_until(swaps, one, other[0] if other else one, now_seconds) is not None

    def _tidy(self, now_seconds: int) -> None:
        kept = {pair: found for pair, swaps in self._pairs.items() if (found := recent(swaps, now_seconds))}
        self._pairs = kept
        self._tidy_at = max(TIDY_AT, 2 * len(kept))
