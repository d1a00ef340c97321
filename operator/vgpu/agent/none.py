"""The source of a node without GPUs: it reads nothing, so no inventory is ever written."""

import asyncio
from collections.abc import AsyncIterator

from vgpu.agent.source import CardReading, HealthEvent


class NoneSource:
    """A node that is meant to have no cards."""

    recheck_seconds: float | None = None

    async def read(self) -> CardReading | None:
        """None: this node is meant to have no cards, which differs from a reading with no cards."""
        return None

    async def health_events(self) -> AsyncIterator[HealthEvent]:
        """Nothing ever happens."""
        await asyncio.Event().wait()
        yield  # type: ignore[misc]  # never reached: the yield makes this an iterator

    async def close(self) -> None:
        """Nothing is held."""
