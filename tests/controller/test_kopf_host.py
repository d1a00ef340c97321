"""kopf owns the process and writes nothing."""

import asyncio
import logging
import os
import signal
from itertools import islice

import kopf
import pytest

from vgpu.controller.kopf_host import configure
from vgpu.controller.kopf_quiet import (
    HELD_SECONDS,
    EndlessBackoffs,
    Logins,
    first_attempt_in_short,
    stop_on_signals,
)


def test_kopf_posts_peers_and_stores_nothing() -> None:
    settings = kopf.OperatorSettings()
    configure(settings)
    assert not settings.posting.enabled
    assert settings.peering.standalone
    assert settings.scanning.disabled
    body, patch = kopf.Body({"metadata": {"annotations": {"a": "b"}}}), kopf.Patch()
    storage = settings.persistence.diffbase_storage
    storage.store(body=body, patch=patch, essence=storage.build(body=body))
    settings.persistence.progress_storage.touch(body=body, patch=patch, value="now")
    assert dict(patch) == {}
    assert storage.fetch(body=body) is None


def test_what_kopf_stores_by_default_would_be_a_patch() -> None:
    """The check above can fail: the default storage marks every object that it handles."""
    settings = kopf.OperatorSettings()
    body, patch = kopf.Body({"metadata": {"annotations": {"a": "b"}}}), kopf.Patch()
    storage = settings.persistence.diffbase_storage
    storage.store(body=body, patch=patch, essence=storage.build(body=body))
    assert dict(patch) != {}


def test_requests_are_repeated_for_ever_with_growing_pauses_each_time_anew() -> None:
    backoffs = EndlessBackoffs()
    assert list(islice(backoffs, 7)) == [1, 2, 4, 8, 16, 30, 30]
    assert list(islice(backoffs, 2)) == [1, 2]


async def test_logins_that_do_not_last_are_made_ever_more_seldom_and_warned_about_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now, made = 0.0, []

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    logins = Logins(lambda: now, sleep)
    for _ in range(8):
        await logins.turn()
        made.append(now)
    assert made == [0, 1, 3, 7, 15, 31, 61, 91]
    assert [record.levelname for record in caplog.records if record.levelno >= logging.WARNING] == ["WARNING"]
    now += HELD_SECONDS
    await logins.turn()
    assert now == 91 + HELD_SECONDS + 1


def test_of_a_failed_request_the_first_attempt_is_told_in_short() -> None:
    def record(attempt: int) -> logging.LogRecord:
        text = (
            f"Request attempt #{attempt} failed; will retry: GET https://a:1/api -> ClientConnectorError("
            "ConnectionKey(host='a', port=1, proxy_headers_hash=None), ConnectionRefusedError(111, 'refused'))"
        )
        return logging.LogRecord("kopf", logging.ERROR, "", 0, text, (), None)

    first = record(1)
    assert first_attempt_in_short(first)
    assert first.getMessage().endswith("-> ClientConnectorError(ConnectionRefusedError(111, 'refused'))")
    assert not first_attempt_in_short(record(2))
    closed = "Request attempt #1 failed; will retry: GET /api -> ClientConnectionError('Connector is closed.')"
    assert not first_attempt_in_short(logging.LogRecord("kopf", logging.ERROR, "", 0, closed, (), None))
    assert first_attempt_in_short(logging.LogRecord("kopf", logging.ERROR, "", 0, "something else", (), None))


async def test_a_second_signal_is_no_fault() -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    faults: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: faults.append(context))
    stop_on_signals(stop, 600)
    try:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(stop.wait(), 5)
            await asyncio.sleep(0)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    assert faults == []
