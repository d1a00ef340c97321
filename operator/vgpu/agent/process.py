"""What every process of the agent does alike: logging, ending on a signal, and telling a wrong setting.

A coroutine enters, an exit status leaves. Nothing of the agent's work is here.
"""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from vgpu.errors import ConfigurationError

LEVELS = ("debug", "info", "warning", "error")
WRONG_SETTING_STATUS = 2


def set_up_logging(level: str) -> None:
    """key=value lines on stderr; a level in either case. Raises ConfigurationError for an unknown one."""
    if level.lower() not in LEVELS:
        raise ConfigurationError(f"--log-level {level}: unknown; known are {', '.join(LEVELS)}")
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(message)s")


async def until_signalled(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until SIGTERM or SIGINT, then cancel it and return."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def run_process(work: Callable[[], Coroutine[Any, Any, None]], log_level: str) -> int:
    """Run one process of the agent. The exit status; a wrong setting is one line on stderr and 2."""
    try:
        set_up_logging(log_level)
        asyncio.run(until_signalled(work()))
    except ConfigurationError as error:
        print(f"wrong setting: {error}", file=sys.stderr)
        return WRONG_SETTING_STATUS
    return 0
