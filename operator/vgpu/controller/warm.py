"""Counts every node once, in turns with the rest of the loop, before the first question comes.

Enters: a ledger just filled from lists. Leaves: the same ledger with every view made: at 5,000 nodes and 100,000
pods that takes seconds, which the first filter call would otherwise wait for. May not live here: what a view is.
"""

import asyncio
import gc
import time

from vgpu.core.ledger import Ledger

TURN_SECONDS = 0.01
"""The loop is given to others at least this often."""


async def warm_views(ledger: Ledger) -> None:
    """Make the view of every node that the ledger knows now."""
    turn_ends = time.monotonic() + TURN_SECONDS
    for name in list(ledger.nodes()):
        ledger.view(name)
        if time.monotonic() > turn_ends:
            await asyncio.sleep(0)
            turn_ends = time.monotonic() + TURN_SECONDS
    # What was just read lives as long as the process: the collector need not walk it again and again.
    gc.freeze()
