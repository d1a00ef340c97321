"""Lets the fit index learn about all nodes in turns with the rest of the loop.

Enters: the index, requests that somebody is about to ask about. Leaves: an index that answers them at once. On a
cluster of thousands of unlike nodes the first question of a request takes most of a second, and kube-scheduler
would wait for it. May not live here: what is asked.
"""

import asyncio
from collections.abc import Generator, Iterable
from typing import TypeVar

from vgpu.core.index import FitIndex
from vgpu.core.request import PodRequest

Result = TypeVar("Result")

EFFORT_PER_TURN = 64
"""About ten milliseconds, in the index's measure: requests that are dear to judge get fewer nodes a turn."""


async def learn(index: FitIndex, requests: Iterable[PodRequest | None]) -> None:
    """Come back when every request (None is skipped) can be answered for all nodes."""
    for request in {request for request in requests if request is not None}:
        more = index.learn_some(request, EFFORT_PER_TURN)
        while more:
            await asyncio.sleep(0)
            more = index.learn_some(request, EFFORT_PER_TURN)


async def in_pieces(work: Generator[None, None, Result]) -> Result:
    """Do the work, with a turn for everybody else wherever it yields."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: Result = done.value
            return found
        await asyncio.sleep(0)
