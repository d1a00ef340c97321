"""Who leads: one process at a time holds the Lease.

Enters: the Lease by watch (a follower asks nothing), the fence's monotonic clock. Leaves: an open or closed fence
and the two callbacks. May not live here: what a leader does.

Why two never lead: a leader's fence closes renew_deadline_seconds after the *sending* of its last successful
renewal; another takes the Lease lease_seconds after it *saw* the last change, with the resourceVersion that it
saw. No late answer, no clock of another machine and no hanging request can change that.
"""

import asyncio
import logging
import random
import socket
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from vgpu import names
from vgpu.controller.lease import Body, Candidate, LeaseRecord, LeaseView, decode_lease, held_body, released_body
from vgpu.controller.writer import LEASES, Writer
from vgpu.errors import ApiError, ApiRefused, MalformedObject, OutcomeUnknown
from vgpu.kube.backoff import STEADY_SECONDS, Backoff
from vgpu.kube.client import ApiClient
from vgpu.kube.reflector import Reflector, ReflectorSpec
from vgpu.settings import OperatorSettings, check_together

__all__ = ["Callbacks", "Candidate", "Elector", "new_identity"]

logger = logging.getLogger(__name__)

NO_ANSWER = (ApiError, OutcomeUnknown, MalformedObject, TimeoutError)
STEP_DOWN_MOST_SECONDS = 60.0
REFUSED_MOST_SECONDS = 15.0
"""The longest pause after a definite no: it stays one until a person changes something."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """`on_started` runs as a task while we lead (it may end early; if it fails we step down); it is cancelled when
    leadership ends. `on_stopped` is called at once then, after the fence closed."""

    on_started: Callable[[], Awaitable[None]]
    on_stopped: Callable[[], None]


def new_identity() -> str:
    """Unique to this start of this process: a restart never takes itself for the holder it was."""
    return f"{socket.gethostname()}_{uuid.uuid4().hex[:12]}"


class Elector:
    """Competes for the Lease, keeps it, gives it back at exit. `writer.fence` is opened and closed here only."""

    def __init__(
        self,
        client: ApiClient,
        writer: Writer,
        settings: OperatorSettings,
        candidate: Candidate,
        callbacks: Callbacks,
    ) -> None:
        check_together(settings)
        self._client = client
        self._writer = writer
        self._fence = writer.fence
        self._settings = settings
        self._candidate = candidate
        self._callbacks = callbacks
        self._view = LeaseView(self._fence.now)
        self.problem = ""
        """Why the API server does not let this process take the Lease, for readiness; "" while it may."""
        self._step_down = Backoff(settings.retry_seconds, STEP_DOWN_MOST_SECONDS)
        self._refused = Backoff(settings.retry_seconds, REFUSED_MOST_SECONDS)
        self._path = LEASES.format(settings.namespace)
        spec = ReflectorSpec(
            self._path,
            {"fieldSelector": f"metadata.name={names.LEASE_NAME}"},
            silence_seconds=settings.watch_silence_seconds,
        )
        self.reflector = Reflector(client, spec, decode_lease, self._view)

    @property
    def holder(self) -> str:
        """The holder's identity as last seen, "" for nobody."""
        return self._view.record.holder if self._view.record else ""

    async def run(self) -> None:
        """Run until cancelled; then a held Lease is given back, after the last write has ended."""
        watch = asyncio.create_task(self.reflector.run(), name="watch of the Lease")
        try:
            while True:
                await self._campaign()
                if not await self._lead():
                    await self._release()
                    await asyncio.sleep(self._step_down.next_seconds(self._settings.retry_seconds))
        finally:
            watch.cancel()
            await asyncio.wait({watch})
            await self._release()

    async def _campaign(self) -> None:
        """Come back as the holder."""
        while True:
            self._view.changed.clear()
            free_in_seconds = self._view.free_in_seconds(self._candidate.identity, self._settings.lease_seconds)
            if free_in_seconds > 0:
                self.problem = ""  # what another holds was not asked for
                await self._change_within(free_in_seconds)
            elif await self._claim():
                return
            else:
                least_seconds = random.uniform(0.5, 1) * self._settings.retry_seconds
                longer = self._refused.next_seconds(least_seconds) if self.problem else least_seconds
                await asyncio.sleep(longer)

    async def _claim(self) -> bool:
        try:
            async with asyncio.timeout(self._settings.lease_request_seconds):
                await self._read()
            if not self._may_take():
                return False
            return await self._hold(self._settings.lease_request_seconds)
        except ApiRefused as error:
            self._note_refusal(error)
            return False
        except NO_ANSWER as error:
            logger.info("lease not taken: %s", _told(error))
            return False

    def _note_refusal(self, error: ApiRefused) -> None:
        """Say a definite no once, and keep it for readiness: nothing changes until a person does something."""
        where = f"{self._settings.namespace}/{names.LEASE_NAME}"
        problem = f"cannot take the Lease {where}: {error.status} {error}; {_what_to_do(error.status)}"
        if problem != self.problem:
            logger.warning("%s", problem)
        self.problem = problem

    async def _lead(self) -> bool:
        """Lead until the Lease is lost; False when our own work failed and we step down."""
        began = self._fence.now()
        logger.info("leading started identity=%s", self._candidate.identity)
        work = asyncio.ensure_future(self._callbacks.on_started())
        work.add_done_callback(lambda _: self._view.changed.set())
        try:
            renew_at = self._fence.now() + renew_interval_seconds(self._settings)
            while self._still_leading():
                self._view.changed.clear()
                if work.done() and not work.cancelled() and (error := work.exception()):
                    logger.error("leading failed, stepping down", exc_info=error)
                    return False
                if self._fence.now() < renew_at:
                    await self._change_within(min(renew_at, self._fence.deadline or 0) - self._fence.now())
                else:
                    renew_at = await self._renew()
            return True
        finally:
            self._fence.lost()
            work.cancel()
            self._callbacks.on_stopped()
            logger.info("leading ended holder=%s", self.holder)
            self._step_down.worked_for(self._fence.now() - began)
            await asyncio.wait({work})

    def _still_leading(self) -> bool:
        return self._fence.holds_lease and not self._view.held_by_other(self._candidate.identity)

    async def _renew(self) -> float:
        """Renew once; gives the time of the clock for the next try."""
        began = self._fence.now()
        left_seconds = (self._fence.deadline or began) - began
        try:
            if await self._hold(min(self._settings.lease_request_seconds, left_seconds)):
                return began + renew_interval_seconds(self._settings)
        except ApiRefused as error:
            self._note_refusal(error)
        except NO_ANSWER as error:
            logger.warning("lease not renewed: %s", _told(error))
        return began + self._settings.retry_seconds

    async def _hold(self, seconds: float) -> bool:
        """Write the Lease with us as its holder. False when it is not ours to take; raises one of NO_ANSWER."""
        async with asyncio.timeout(seconds):
            return await self._write_again_if_ours(
                lambda record: held_body(record, self._candidate, self._settings.lease_seconds, datetime.now(UTC)),
                self._fence.renewed,
            )

    async def _release(self) -> None:
        """Give a held Lease back, when none of our writes can still be carried out."""
        self._fence.lost()
        if self.holder != self._candidate.identity:
            return
        await self._writer.drain()
        try:
            async with asyncio.timeout(self._settings.lease_request_seconds):
                await self._write_again_if_ours(released_body, lambda _: None)
        except NO_ANSWER as error:
            logger.warning("lease not released: %s", _told(error))

    async def _write_again_if_ours(
        self, make_body: Callable[[LeaseRecord | None], Body], written: Callable[[float], None]
    ) -> bool:
        """A conflict may be an earlier write of ours whose answer was lost: read, and write once more if it is.

        `written` is told the time just before the sending of the write that succeeded.
        """
        for _ in range(2):
            sent_at = self._fence.now()
            body = make_body(self._view.record)
            replaces = "resourceVersion" in body["metadata"]
            try:
                answer = await self._write(body)
            except ApiRefused as error:
                # Where no Lease is replaced but a new one created, "not found" is about the namespace.
                if error.status != 409 and not (error.status == 404 and replaces):
                    raise
                await self._read()
                if not self._may_take():
                    return False
            else:
                self.problem = ""
                self._refused.worked_for(STEADY_SECONDS)
                written(sent_at)
                self._view.learn(decode_lease(answer).fact)
                return True
        return False

    def _may_take(self) -> bool:
        """A leader may write a Lease that is its own or was deleted; anybody else only one that is free."""
        if self._fence.holds_lease:
            return not self._view.held_by_other(self._candidate.identity)
        return self._view.free_in_seconds(self._candidate.identity, self._settings.lease_seconds) <= 0

    async def _write(self, body: Body) -> bytes:
        body["metadata"].setdefault("namespace", self._settings.namespace)
        body["metadata"].setdefault("name", names.LEASE_NAME)
        if "resourceVersion" in body["metadata"]:
            return await self._writer.put_lease(body)
        return await self._writer.create_lease(body)

    async def _read(self) -> None:
        try:
            answer = await self._client.get(f"{self._path}/{names.LEASE_NAME}")
        except ApiRefused as error:
            if error.status != 404:
                raise
            self._view.vanished()
        else:
            self._view.learn(decode_lease(answer).fact)

    async def _change_within(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(None if seconds == float("inf") else seconds):
                await self._view.changed.wait()


def renew_interval_seconds(settings: OperatorSettings) -> float:
    """As seldom as the fence allows: a renewal that takes its whole time-out must not close it for a moment."""
    slack = settings.renew_deadline_seconds - settings.write_margin_seconds - settings.lease_request_seconds
    return min(settings.lease_seconds / 3, slack)


def _what_to_do(status: int) -> str:
    if status == 404:
        return "create the namespace, or set VGPU_NAMESPACE to the one that the operator runs in"
    if status == 403:
        return "let the operator's account get, list, watch, create and update leases in that namespace"
    if status == 401:
        return "renew the token or certificate of the operator's account"
    return "the API server's answer says what must change; it is asked again from time to time"


def _told(error: BaseException) -> str:
    return str(error) or type(error).__name__
