"""The agent's time: the shared clock, and waiting for an event no longer than so long."""

import asyncio

from vgpu.clock import Clock, SystemClock

__all__ = ["Clock", "SystemClock", "wait_for_event"]


async def wait_for_event(event: asyncio.Event, clock: Clock, timeout_seconds: float | None) -> bool:
    """Wait until `event` is set or the time is over; says whether it is set."""
    if event.is_set() or timeout_seconds is None:
        await event.wait()
        return True
    waiter = asyncio.ensure_future(event.wait())
    sleeper = asyncio.ensure_future(clock.sleep(timeout_seconds))
    try:
        await asyncio.wait({waiter, sleeper}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiter.cancel()
        sleeper.cancel()
    return event.is_set()
