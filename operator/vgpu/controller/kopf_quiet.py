"""What keeps kopf from flooding: pauses between logins, one line per fault, one stop per signal.

Enters: kopf's login calls, its log records, signals. Leaves: pauses, fewer and shorter lines, a stop flag. May not
live here: kopf's settings and handlers (kopf_host).
"""

import asyncio
import logging
import re
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator

LOG = logging.getLogger(__name__)
MOST_PAUSE_SECONDS = 30
HELD_SECONDS = 120.0
"""A login that lasted so long was a good one: the next comes at once."""
QUIET = ("kopf.objects", "kopf.activities.authentication", "kopf._core.engines.activities")
"""Loggers whose INFO is a line per object, handler and login."""
ASKING = ("kopf.objects", "kopf._core.reactor.observation", "kopf._cogs.clients.watching")
"""Loggers that tell of failed requests."""
_RETRY = re.compile(r"Request attempt #(\d+)\S* failed; will retry")
_NEW_LOGIN = re.compile(r"will re-authenticate|Connector is closed")
_CONNECTION_KEY = re.compile(r"ConnectionKey\(.*?\), ")


class EndlessBackoffs:
    """Pauses between repeated requests: 1 s doubled up to 30 s, for ever; each request starts anew."""

    def __iter__(self) -> Iterator[float]:
        seconds = 1
        while True:
            yield seconds
            seconds = min(seconds * 2, MOST_PAUSE_SECONDS)


class Logins:
    """Paces kopf's logins: kopf logs in again at once after each 401, and a login asks the server nothing."""

    def __init__(
        self, now: Callable[[], float], sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> None:
        self._now = now
        self._sleep = sleep
        self._last: float | None = None
        self._pauses = iter(EndlessBackoffs())
        self._in_a_row = 0

    async def turn(self) -> None:
        """Come back when the next login may be made."""
        if self._last is not None:
            if self._now() - self._last >= HELD_SECONDS:
                self._pauses, self._in_a_row = iter(EndlessBackoffs()), 0
            self._in_a_row += 1
            if self._in_a_row == 1:
                LOG.info("the API server asks for a new login (401)")
            elif self._in_a_row == 2:
                LOG.warning(
                    "the API server does not accept the credentials (401): renew the token or certificate; "
                    "a login is tried again every %d s at most",
                    MOST_PAUSE_SECONDS,
                )
            await self._sleep(next(self._pauses))
        self._last = self._now()


def quieten() -> None:
    """Only kopf's warnings are news, and of a failed request the first attempt, in short."""
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ASKING:
        logging.getLogger(name).addFilter(first_attempt_in_short)


def first_attempt_in_short(record: logging.LogRecord) -> bool:
    """A filter of log records: False for the repeated attempts of one request, and for those that only ended with
    the login before; shortens the others."""
    message = record.getMessage()
    if _NEW_LOGIN.search(message):
        return False
    attempt = _RETRY.search(message)
    if attempt is not None:
        record.msg, record.args = _CONNECTION_KEY.sub("", message), ()
    return attempt is None or attempt[1] == "1"


def stop_on_signals(stop: asyncio.Event, exit_seconds: float) -> None:
    """Set `stop` on SIGTERM and SIGINT, however often they come; after `exit_seconds` the process is killed.

    kopf's own handlers fail on the second signal, which `timeout` and a person at a terminal do send.
    """
    loop = asyncio.get_running_loop()

    def stopping(number: signal.Signals) -> None:
        if not stop.is_set():
            LOG.info("stopping on signal=%s", number.name)
            thread = threading.get_ident()
            loop.call_later(exit_seconds, signal.pthread_kill, thread, signal.SIGKILL)
            stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping, number)
