"""Leadership on a virtual clock: hours of hanging requests in milliseconds, and never two leaders."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from tests.controller.lease_server import LeaseClient, LeaseServer
from tests.controller.virtual_time import run_virtually
from vgpu import names
from vgpu.controller import elector
from vgpu.controller.elector import (
    Callbacks,
    Candidate,
    Elector,
    new_identity,
    renew_interval_seconds,
)
from vgpu.controller.fence import Fence
from vgpu.controller.lease import LeaseView
from vgpu.controller.writer import BindingWrite, Writer
from vgpu.errors import ApiRefused, ConfigurationError, LeaseRunsOut, OutcomeUnknown
from vgpu.settings import OperatorSettings, check_together

SETTINGS = OperatorSettings()


class Replica:
    """One process that competes: its way to the server, its fence, what its callbacks were told."""

    def __init__(
        self,
        server: LeaseServer,
        identity: str,
        work: Callable[[], Awaitable[None]] | None = None,
        refusal: ApiRefused | None = None,
    ) -> None:
        self.client = LeaseClient(server)
        self.client.refusal = refusal
        loop = asyncio.get_running_loop()
        self.fence = Fence(SETTINGS.renew_deadline_seconds, SETTINGS.write_margin_seconds, loop.time)
        self.writer = Writer(self.client, self.fence, SETTINGS)  # type: ignore[arg-type]
        self.identity = identity
        self.serving = False
        self.starts = 0
        self._work = work
        self.elector = Elector(
            self.client,  # type: ignore[arg-type]
            self.writer,
            SETTINGS,
            Candidate(identity, f"{identity}.example:9443"),
            Callbacks(self._started, self._stopped),
        )
        self.task = asyncio.create_task(self.elector.run())

    async def _started(self) -> None:
        self.serving = True
        self.starts += 1
        if self._work is not None:
            await self._work()

    def _stopped(self) -> None:
        assert not self.fence.may_write()
        self.serving = False

    async def end(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task

    def kill(self) -> None:
        """As by SIGKILL: nothing of it goes on, and nothing is given back."""
        self.client.refuses = True
        self.task.cancel()


async def within(seconds: float, condition: Callable[[], bool], what: str) -> float:
    """Let time pass until the condition holds; gives the seconds that passed."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not condition():
        assert loop.time() - began <= seconds, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.01)  # virtual
    return loop.time() - began


def test_first_one_leads_at_once_and_states_its_address() -> None:
    async def story() -> None:
        server = LeaseServer()
        first = Replica(server, "one")
        await within(1, lambda: first.serving, "leading")
        assert first.fence.may_write()
        assert server.lease
        assert server.lease["metadata"]["annotations"] == {names.LEASE_ADDRESS_ANNOTATION: "one.example:9443"}
        assert server.lease["spec"]["leaseDurationSeconds"] == 15
        await first.end()

    run_virtually(story())


@pytest.mark.parametrize(
    ("refusal", "advice"),
    [
        (ApiRefused(404, "NotFound", 'namespaces "vgpu-system" not found'), "create the namespace"),
        (ApiRefused(403, "Forbidden", "leases is forbidden"), "let the operator's account"),
        (ApiRefused(422, "Invalid", "spec is invalid"), "the API server's answer says what must change"),
    ],
    ids=["404", "403", "422"],
)
def test_a_definite_no_is_said_once_asked_for_seldom_and_forgotten_when_it_ends(
    refusal: ApiRefused, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        server = LeaseServer()
        replica = Replica(server, "one", refusal=refusal)
        await within(1, lambda: bool(replica.elector.problem), "a problem for readiness")
        await asyncio.sleep(600)
        assert not replica.serving
        assert replica.client.puts < 600 / 2 / 2
        assert f"{refusal.status} {refusal}" in replica.elector.problem
        warnings = [record.getMessage() for record in caplog.records if record.name == elector.__name__]
        assert warnings == [replica.elector.problem]
        assert advice in warnings[0]
        replica.client.refusal = None
        await within(16, lambda: replica.serving, "leading once it is allowed")
        assert replica.elector.problem == ""
        await replica.end()

    run_virtually(story())


def test_idle_hour_has_no_requests_but_the_leaders_renewals() -> None:
    async def story() -> None:
        server = LeaseServer()
        leader = Replica(server, "one")
        await within(1, lambda: leader.serving, "leading")
        follower = Replica(server, "two")
        await asyncio.sleep(5)
        reads, puts = leader.client.reads + follower.client.reads, leader.client.puts
        await asyncio.sleep(3600)
        assert leader.client.reads + follower.client.reads == reads
        assert follower.client.puts == 0
        assert leader.client.puts - puts == pytest.approx(3600 / renew_interval_seconds(SETTINGS), rel=0.01)
        assert leader.starts == 1
        await leader.end()
        await follower.end()

    run_virtually(story())


def test_leader_that_ends_gives_the_lease_back() -> None:
    async def story() -> None:
        server = LeaseServer()
        leader = Replica(server, "one")
        await within(1, lambda: leader.serving, "leading")
        follower = Replica(server, "two")
        await asyncio.sleep(1)
        await leader.end()
        assert not leader.serving
        assert await within(3, lambda: follower.serving, "taken over") < 1
        assert server.lease
        assert server.lease["spec"]["leaseTransitions"] == 1
        await follower.end()
        assert server.holder == ""
        assert names.LEASE_ADDRESS_ANNOTATION not in server.lease["metadata"]["annotations"]

    run_virtually(story())


def test_killed_leader_is_followed_after_the_lease() -> None:
    async def story() -> None:
        server = LeaseServer()
        leader = Replica(server, "one")
        await within(1, lambda: leader.serving, "leading")
        follower = Replica(server, "two")
        await asyncio.sleep(60)
        leader.kill()
        passed = await within(25, lambda: follower.serving, "taken over")
        assert passed > SETTINGS.lease_seconds - renew_interval_seconds(SETTINGS) - 1
        await follower.end()

    run_virtually(story())


def test_leader_whose_requests_hang_stops_before_another_starts() -> None:
    async def story() -> None:
        server = LeaseServer()
        leader = Replica(server, "one")
        await within(1, lambda: leader.serving, "leading")
        follower = Replica(server, "two")
        await asyncio.sleep(60)
        leader.client.hangs = True
        stopped = await within(SETTINGS.renew_deadline_seconds + 0.1, lambda: not leader.serving, "stepped down")
        assert not follower.serving
        started = await within(25, lambda: follower.serving, "taken over")
        assert started > 1
        assert stopped + started < SETTINGS.lease_seconds + 2 * SETTINGS.retry_seconds
        leader.client.hangs = False
        await asyncio.sleep(120)
        assert (leader.serving, follower.serving) == (False, True)
        await leader.end()
        await follower.end()

    run_virtually(story())


def test_short_hang_costs_no_leadership() -> None:
    async def story() -> None:
        server = LeaseServer()
        leader = Replica(server, "one")
        await within(1, lambda: leader.serving, "leading")
        await asyncio.sleep(60)
        leader.client.hangs = True
        await asyncio.sleep(5)
        leader.client.hangs = False
        await asyncio.sleep(60)
        assert leader.starts == 1
        assert leader.serving
        await leader.end()

    run_virtually(story())


def test_lost_answers_of_renewals_are_found_again() -> None:
    """Each write is carried out, none is answered for a while: the next write meets a conflict with our own."""

    async def story() -> None:
        server = LeaseServer()
        leader = Replica(server, "one")
        await within(1, lambda: leader.serving, "leading")
        leader.client.blind = True
        for _ in range(10):
            leader.client.loses_answers = True
            await asyncio.sleep(4)
            leader.client.loses_answers = False
            await asyncio.sleep(4)
        assert leader.starts == 1
        assert leader.serving
        await leader.end()

    run_virtually(story())


def test_follower_with_a_silent_watch_does_not_take_a_held_lease() -> None:
    async def story() -> None:
        server = LeaseServer()
        leader = Replica(server, "one")
        await within(1, lambda: leader.serving, "leading")
        follower = Replica(server, "two")
        await asyncio.sleep(1)
        follower.client.blind = True
        await asyncio.sleep(300)
        assert (leader.serving, follower.serving) == (True, False)
        await leader.end()
        await follower.end()

    run_virtually(story())


def test_deleted_lease_is_created_anew_by_its_holder() -> None:
    async def story() -> None:
        server = LeaseServer()
        leader = Replica(server, "one")
        await within(1, lambda: leader.serving, "leading")
        follower = Replica(server, "two")
        await asyncio.sleep(1)
        server.delete()
        await asyncio.sleep(60)
        assert server.holder == "one"
        assert (leader.starts, follower.starts) == (1, 0)
        await leader.end()
        await follower.end()

    run_virtually(story())


def test_lease_deleted_under_a_hanging_leader_is_waited_out() -> None:
    async def story() -> None:
        server = LeaseServer()
        leader = Replica(server, "one")
        await within(1, lambda: leader.serving, "leading")
        follower = Replica(server, "two")
        await asyncio.sleep(1)
        leader.client.hangs = True
        server.delete()
        await within(25, lambda: follower.serving, "taken over")
        assert not leader.fence.leading
        await leader.end()
        await follower.end()

    run_virtually(story())


def test_lease_taken_by_somebody_else_ends_leadership_at_once() -> None:
    async def story() -> None:
        server = LeaseServer()
        leader = Replica(server, "one")
        await within(1, lambda: leader.serving, "leading")
        assert server.lease
        body = {**server.lease, "spec": {**server.lease["spec"], "holderIdentity": "a person"}}
        server.write("PUT", body)
        await within(0.1, lambda: not leader.serving, "stepped down")
        await leader.end()
        assert server.holder == "a person"

    run_virtually(story())


def test_lease_taken_by_somebody_else_is_not_taken_back_by_a_renewal() -> None:
    """The watch is silent: the conflict of the next renewal is the first that the leader hears of it."""

    async def story() -> None:
        server = LeaseServer()
        leader = Replica(server, "one")
        await within(1, lambda: leader.serving, "leading")
        leader.client.blind = True
        assert server.lease
        body = {**server.lease, "spec": {**server.lease["spec"], "holderIdentity": "a person"}}
        server.write("PUT", body)
        await within(5, lambda: not leader.serving, "stepped down")
        assert server.holder == "a person"
        await leader.end()

    run_virtually(story())


def test_lease_deleted_behind_a_silent_watch_is_created_in_the_end() -> None:
    async def story() -> None:
        server = LeaseServer()
        leader = Replica(server, "one")
        await within(1, lambda: leader.serving, "leading")
        follower = Replica(server, "two")
        await asyncio.sleep(1)
        follower.client.blind = True
        leader.kill()
        server.delete()
        passed = await within(40, lambda: follower.serving, "taken over")
        assert passed > SETTINGS.lease_seconds
        await follower.end()

    run_virtually(story())


def test_etcd_restored_from_a_backup_does_not_leave_the_lease_for_ever() -> None:
    """Versions go back: what is read counts, whatever its version."""

    async def story() -> None:
        server = LeaseServer(version=5000)
        leader = Replica(server, "one")
        await within(1, lambda: leader.serving, "leading")
        assert server.lease
        server.version = 20
        server.lease = {**server.lease, "metadata": {**server.lease["metadata"], "resourceVersion": "20"}}
        await asyncio.sleep(60)
        assert leader.serving
        await leader.end()

    run_virtually(story())


def test_work_that_fails_hands_leadership_over() -> None:
    async def broken() -> None:
        await asyncio.sleep(1)
        raise ZeroDivisionError("a bug")

    async def story() -> None:
        server = LeaseServer()
        first = Replica(server, "one", broken)
        await within(1, lambda: first.serving, "leading")
        second = Replica(server, "two")
        await within(5, lambda: second.serving, "taken over")
        assert not first.fence.leading
        await asyncio.sleep(60)
        assert second.starts == 1
        await first.end()
        await second.end()

    run_virtually(story())


def test_release_waits_for_writes_that_may_still_be_carried_out() -> None:
    async def story() -> None:
        server = LeaseServer()
        leader = Replica(server, "one")
        await within(1, lambda: leader.serving, "leading")
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def lose(request: object) -> bytes:
            raise OutcomeUnknown("no answer")

        send, leader.client.send = leader.client.send, lose  # type: ignore[method-assign]
        with pytest.raises(OutcomeUnknown):
            await leader.writer.bind(BindingWrite("n", "p", "u", "node", {}))
        leader.client.send = send  # type: ignore[method-assign]
        await leader.end()
        assert server.holder == ""
        assert loop.time() - began >= SETTINGS.write_seconds

    run_virtually(story())


def test_write_without_the_lease_is_refused_before_it_is_sent() -> None:
    async def story() -> None:
        server = LeaseServer()
        leader = Replica(server, "one")
        await within(1, lambda: leader.serving, "leading")
        leader.client.hangs = True
        await within(7, lambda: not leader.fence.may_write(), "margin")
        assert leader.fence.leading
        puts = leader.client.puts
        with pytest.raises(LeaseRunsOut):
            await leader.writer.bind(BindingWrite("n", "p", "u", "node", {}))
        assert leader.client.puts == puts
        await leader.end()

    run_virtually(story())


async def storm(seed: int, replicas: list[Replica], server: LeaseServer, seconds: float) -> int:
    """Ways break and mend at random; gives how often two fences were open at one moment."""
    draw = random.Random(seed)
    random.seed(seed)
    loop = asyncio.get_running_loop()
    end, both = loop.time() + seconds, 0
    while loop.time() < end:
        for replica in replicas:
            if draw.random() < 0.02:
                client = replica.client
                client.hangs = draw.random() < 0.5
                client.blind = draw.random() < 0.3
                client.loses_answers = draw.random() < 0.3
                client.refuses = draw.random() < 0.2
                client.late_seconds = draw.choice([None, 1.9, 5.0, 30.0])
        await asyncio.sleep(0.2)
        both += sum(replica.fence.leading for replica in replicas) > 1
    return both


@pytest.mark.parametrize("seed", range(5))
def test_no_storm_makes_two_leaders(seed: int) -> None:
    async def story() -> None:
        server = LeaseServer()
        replicas = [Replica(server, name) for name in ("one", "two", "three")]
        assert await storm(seed, replicas, server, 1200) == 0
        assert sum(replica.starts for replica in replicas) > 3
        for replica in replicas:
            replica.client.mend()
        await within(60, lambda: sum(replica.serving for replica in replicas) == 1, "one leads in the end")
        for replica in replicas:
            await replica.end()

    run_virtually(story())


def test_storm_finds_two_leaders_when_the_fence_never_closes() -> None:
    """With the rule switched off the check must fail: it is the fence that keeps leaders apart."""

    async def story() -> None:
        server = LeaseServer()
        replicas = [Replica(server, name) for name in ("one", "two", "three")]
        for replica in replicas:
            replica.fence._renew_deadline_seconds = 1e9
        assert await storm(0, replicas, server, 900) > 0
        for replica in replicas:
            replica.client.mend()
            await replica.end()

    run_virtually(story())


def test_storm_finds_two_leaders_when_nobody_waits_for_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other half of the rule: a follower that takes an unexpired Lease meets an open fence."""
    monkeypatch.setattr(LeaseView, "free_in_seconds", lambda *_: 0.0)

    async def story() -> None:
        server = LeaseServer()
        replicas = [Replica(server, name) for name in ("one", "two", "three")]
        assert await storm(0, replicas, server, 60) > 0
        for replica in replicas:
            replica.client.mend()
            await replica.end()

    run_virtually(story())


def test_identity_is_unique_to_each_start() -> None:
    assert new_identity() != new_identity()


@pytest.mark.parametrize(
    ("change", "names_setting"),
    [
        ({"renew_deadline_seconds": 15}, "VGPU_RENEW_DEADLINE_SECONDS"),
        ({"write_seconds": 4}, "VGPU_WRITE_SECONDS"),
        ({"lease_request_seconds": 6}, "VGPU_LEASE_REQUEST_SECONDS"),
    ],
)
def test_times_that_do_not_fit_are_named(change: dict[str, float], names_setting: str) -> None:
    with pytest.raises(ConfigurationError, match=names_setting):
        check_together(OperatorSettings(**change))
