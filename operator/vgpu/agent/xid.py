"""What NVIDIA's Xid numbers mean for new work on a card: a table, and what a node's settings change of it.

Source: NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors); the ignored ones are what NVIDIA's own device
plugin ignores, since applications cause them. An Xid that is not in the table is shown and never fatal.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final


class Effect(StrEnum):
    """What an Xid does to its card."""

    IGNORED = "ignored"
    """An application's own fault: not even shown."""
    SHOWN = "shown"
    """The card stays usable; healthReason tells."""
    FATAL = "fatal"
    """Nothing new is put on the card until it has recovered."""


@dataclass(frozen=True, slots=True)
class XidRule:
    """`recoverable` False: no reading can show that the card is well again; it must be replaced."""

    effect: Effect
    text: str
    recoverable: bool = True


def _ignored(text: str) -> XidRule:
    return XidRule(Effect.IGNORED, text)


def _shown(text: str) -> XidRule:
    return XidRule(Effect.SHOWN, text)


def _fatal(text: str, *, recoverable: bool = True) -> XidRule:
    return XidRule(Effect.FATAL, text, recoverable)


XID_POLICY: Final[Mapping[int, XidRule]] = {
    13: _ignored("graphics engine exception"),
    31: _ignored("memory page fault"),
    43: _ignored("application stopped"),
    45: _ignored("application removed"),
    68: _ignored("video processor exception"),
    109: _ignored("context switch time-out"),
    46: _fatal("the card stopped processing"),
    48: _fatal("double-bit ECC error"),
    61: _fatal("internal micro-controller breakpoint"),
    62: _fatal("internal micro-controller halt"),
    63: _shown("a memory row is remapped or a page retired; a reset completes it"),
    64: _fatal("row remapping or page retirement failed", recoverable=False),
    74: _fatal("NVLink error"),
    79: _fatal("the card has fallen off the bus"),
    92: _shown("high rate of single-bit ECC errors"),
    94: _shown("contained memory error; only its application ended"),
    95: _fatal("uncontained memory error"),
    110: _fatal("security fault"),
    119: _fatal("GSP does not answer"),
    120: _fatal("GSP error"),
    136: _fatal("NVLink training failed"),
    140: _fatal("unrecovered ECC error"),
    143: _fatal("the card could not be initialised"),
    154: _shown("the driver changed its recovery action"),
}


@dataclass(frozen=True, slots=True)
class XidPolicy:
    """The table with the settings' changes: `effects` go over it, and the words and recovery stay."""

    effects: Mapping[int, Effect] = field(default_factory=dict)

    def rule(self, xid: int) -> XidRule:
        """The rule for `xid`; an unknown one is shown."""
        known = XID_POLICY.get(xid)
        effect = self.effects.get(xid)
        if effect is not None and (known is None or known.effect is not effect):
            return replace(known or _shown("unknown"), effect=effect, recoverable=True)
        return known or _shown("unknown, not treated as a fault")

    def describe(self, xid: int) -> str:
        """The text of healthReason: stable for one Xid, so that repeats change nothing."""
        return f"Xid {xid}: {self.rule(xid).text}"
