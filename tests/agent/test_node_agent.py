"""One node's agent from its source to the API server: scenarios R34, R35, R38 to R42 as they are seen there."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.agent.inventory_api import INVENTORIES, InventoryApi, inventory_api, until
from tests.agent.samples import HandClock
from vgpu.agent.assembly import watch_of
from vgpu.agent.config import ExcludedCards, NodeSettings
from vgpu.agent.fixed import CardsDocument, HeldSource, parse_cards
from vgpu.agent.isolation import library_fault
from vgpu.agent.node_agent import NodeAgent
from vgpu.agent.none import NoneSource
from vgpu.agent.publisher import Publisher
from vgpu.agent.source import CardReading, EventKind, GpuSource, HealthEvent, NothingToRead
from vgpu.api.inventory import InventorySpec
from vgpu.core.facts import Plugin
from vgpu.errors import SourceError

Card = dict[str, Any]


def cards(*numbers: int, **of_first: Any) -> list[Card]:
    found = [{"uuid": f"GPU-{n}", "index": n, "minor": n, "model": "A100", "memoryMiB": 81920} for n in numbers]
    found[0] |= of_first
    return found


def document(*numbers: int, **fields: Any) -> CardsDocument:
    return parse_cards({"cards": cards(*numbers) if numbers else [], **fields}, "test")


class Running:
    """A running agent and what its node's inventory says."""

    def __init__(self, api: InventoryApi, agent: NodeAgent, publisher: Publisher, clock: HandClock) -> None:
        self.api, self.agent, self.publisher, self.clock = api, agent, publisher, clock

    def health(self) -> dict[str, str]:
        spec = self.api.spec()
        return {} if spec is None else {gpu["uuid"]: gpu["health"] for gpu in spec["gpus"]}

    def unhealthy(self) -> dict[str, str]:
        spec = self.api.spec() or {"gpus": []}
        return {gpu["uuid"]: gpu["healthReason"] for gpu in spec["gpus"] if gpu["health"] != "Healthy"}

    async def until(self, condition: Any, what: str) -> None:
        """Turn the clock until the condition holds."""
        for _ in range(300):
            with suppress(AssertionError):
                await until(condition, what, 0.03)
                return
            self.clock.advance(1)
        raise AssertionError(f"never happened: {what}")


@asynccontextmanager
async def agent_of(
    api: InventoryApi,
    source: GpuSource,
    settings: NodeSettings | None = None,
    isolation_fault: Callable[[str], str] | None = None,
) -> AsyncIterator[Running]:
    clock, client = HandClock(), api.client()
    publisher = Publisher("n1", client, clock, Random(1))
    agent = NodeAgent(source, settings or NodeSettings(), publisher, clock, isolation_fault)
    tasks = [asyncio.create_task(agent.run()), asyncio.create_task(watch_of(client, publisher).run())]
    try:
        yield Running(api, agent, publisher, clock)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.close()


@pytest.fixture
async def api() -> AsyncIterator[InventoryApi]:
    async with inventory_api() as serving:
        yield serving


async def test_r34_a_restart_with_a_lost_and_a_faulty_card_changes_nothing(api: InventoryApi) -> None:
    source = HeldSource(document(0, 1, 2), "n1")
    async with agent_of(api, source) as running:
        await running.until(lambda: len(running.health()) == 3, "published")
        source.report(HealthEvent("GPU-1", 95, EventKind.XID))
        source.replace(document(0, 1, lost=[{"index": 2, "reason": "GPU is lost"}]))
        await running.until(lambda: len(running.unhealthy()) == 2, "both unhealthy")
        await running.until(lambda: running.publisher.settled, "settled")
    written, spec = api.applies, api.spec()
    again = HeldSource(document(0, 1, lost=[{"index": 2, "reason": "GPU is lost"}]), "n1")
    async with agent_of(api, again) as restarted:
        await until(lambda: restarted.publisher.last_good is not None, "seen")
        await until(lambda: restarted.clock.sleeping != [], "read and at rest")
        assert restarted.publisher.settled
    assert (api.applies, api.spec()) == (written, spec)


async def test_r35_a_node_without_gpus_never_gets_an_object(api: InventoryApi) -> None:
    async with agent_of(api, NoneSource()) as running:
        await running.publisher.synced_once.wait()
        running.clock.advance(3600)
    assert api.applies == 0
    assert api.get(INVENTORIES, "n1") is None


async def test_r35_a_driver_that_is_not_loaded_yet_makes_no_empty_object(api: InventoryApi) -> None:
    source = HeldSource(document(readError="driver not loaded"), "n1")
    async with agent_of(api, source) as running:
        await until(lambda: running.clock.sleeping != [], "waits to read again")
        assert api.applies == 0
        source.replace(document(0, 1))
        await running.until(lambda: len(running.health()) == 2, "published once the driver is there")
    assert api.applies == 1


@pytest.mark.parametrize("restart", [False, True], ids=["same process", "after an agent restart"])
async def test_r35_could_not_read_never_overwrites_a_good_list(api: InventoryApi, restart: bool) -> None:
    source = HeldSource(document(0, 1), "n1")
    async with agent_of(api, source) as running:
        await running.until(lambda: len(running.health()) == 2, "published")
        if not restart:
            source.replace(document(readError="Driver Not Loaded"))
            await running.until(lambda: (api.spec() or {}).get("readError") is not None, "read error")
    broken = HeldSource(document(readError="Driver Not Loaded"), "n1")
    async with agent_of(api, broken) as running:
        await running.until(lambda: (api.spec() or {}).get("readError") == "Driver Not Loaded", "read error")
        assert running.health() == {"GPU-0": "Healthy", "GPU-1": "Healthy"}
        broken.replace(document(0, 1))
        await running.until(lambda: "readError" not in (api.spec() or {"readError": ""}), "read again")


async def test_r35_cards_deleted_while_unreadable_come_back_from_memory(api: InventoryApi) -> None:
    source = HeldSource(document(0, 1), "n1")
    async with agent_of(api, source) as running:
        await running.until(lambda: len(running.health()) == 2, "published")
        source.replace(document(readError="gone"))
        await running.until(lambda: (api.spec() or {}).get("readError") == "gone", "read error")
        api.remove(INVENTORIES, "n1")
        await running.until(lambda: len(running.health()) == 2, "made again")
        assert (api.spec() or {})["readError"] == "gone"


async def test_r38_xid_79_on_card_3_leaves_seven_usable(api: InventoryApi) -> None:
    source = HeldSource(document(*range(8)), "n1")
    async with agent_of(api, source) as running:
        await running.until(lambda: len(running.health()) == 8, "published")
        source.report(HealthEvent("GPU-3", 79, EventKind.XID))
        source.replace(document(0, 1, 2, 4, 5, 6, 7, lost=[{"index": 3, "reason": "GPU is lost"}]))
        await running.until(lambda: running.unhealthy() != {}, "card 3 unhealthy")
        assert running.unhealthy() == {"GPU-3": "Xid 79: the card has fallen off the bus"}
        assert list(running.health().values()).count("Healthy") == 7


async def test_r39_a_card_is_healthy_again_without_a_restart(api: InventoryApi) -> None:
    source = HeldSource(document(0, 1), "n1")
    async with agent_of(api, source) as running:
        await running.until(lambda: len(running.health()) == 2, "published")
        source.report(HealthEvent("GPU-0", 79, EventKind.XID))
        await running.until(lambda: list(running.unhealthy()) == ["GPU-0"], "unhealthy")
        await running.until(lambda: running.unhealthy() == {}, "healthy again")


async def test_r39_many_events_in_a_row_are_few_writes(api: InventoryApi) -> None:
    source = HeldSource(document(0, 1), "n1")
    async with agent_of(api, source) as running:
        await running.until(lambda: len(running.health()) == 2, "published")
        for _ in range(200):
            source.report(HealthEvent("GPU-0", 79, EventKind.XID))
        source.report(HealthEvent("GPU-1", 48, EventKind.XID))
        await running.until(lambda: len(running.unhealthy()) == 2, "both unhealthy")
    assert api.applies <= 3


async def test_r40_an_unknown_xid_is_shown_and_the_card_stays_usable(api: InventoryApi) -> None:
    source = HeldSource(document(0, 1), "n1")
    async with agent_of(api, source) as running:
        await running.until(lambda: len(running.health()) == 2, "published")
        source.report(HealthEvent("GPU-0", 109, EventKind.XID))
        source.report(HealthEvent("GPU-0", 999, EventKind.XID))
        await running.until(lambda: "healthReason" in (api.spec() or {})["gpus"][0], "shown")
        assert (api.spec() or {})["gpus"][0]["healthReason"] == "Xid 999: unknown, not treated as a fault"
        assert running.unhealthy() == {}


async def test_r41_health_is_always_written_out(api: InventoryApi) -> None:
    async with agent_of(api, HeldSource(document(0, 1), "n1")) as running:
        await running.until(lambda: len(running.health()) == 2, "published")
    assert all(gpu["health"] == "Healthy" for gpu in (api.spec() or {})["gpus"])


async def test_r42_a_replaced_card_starts_clean(api: InventoryApi) -> None:
    source = HeldSource(document(0, 1), "n1")
    async with agent_of(api, source) as running:
        await running.until(lambda: len(running.health()) == 2, "published")
        source.report(HealthEvent("GPU-0", 64, EventKind.XID))
        await running.until(lambda: list(running.unhealthy()) == ["GPU-0"], "unhealthy")
        source.replace(parse_cards({"cards": cards(0, 1, uuid="GPU-new")}, "test"))
        await running.until(lambda: "GPU-new" in running.health(), "new card")
        assert running.health() == {"GPU-new": "Healthy", "GPU-1": "Healthy"}


@pytest.mark.parametrize(("boot", "want"), [("boot-2", {}), ("boot-1", {"GPU-0": "Xid 79"})])
async def test_r43_after_a_reboot_a_card_that_answers_is_open_at_once(
    api: InventoryApi, boot: str, want: dict[str, str]
) -> None:
    source = HeldSource(document(0, 1, bootId="boot-1"), "n1")
    async with agent_of(api, source) as running:
        await running.until(lambda: len(running.health()) == 2, "published")
        source.report(HealthEvent("GPU-0", 79, EventKind.XID))
        await running.until(lambda: list(running.unhealthy()) == ["GPU-0"], "unhealthy")
        assert (api.spec() or {})["gpus"][0]["xid"] == 79
        await running.until(lambda: running.publisher.settled, "settled")
    async with agent_of(api, HeldSource(document(0, 1, bootId=boot), "n1")) as again:
        other_boot, waits_for_recovery = boot != "boot-1", lambda: again.clock.sleeping != []
        await until(lambda: (api.spec() or {})["bootId"] == boot if other_boot else waits_for_recovery(), "read")
        assert {uuid: reason.partition(":")[0] for uuid, reason in again.unhealthy().items()} == want


async def test_r43_partitions_are_read_anew_after_a_reboot(api: InventoryApi) -> None:
    """A card that was cut comes up whole: nothing of an earlier boot is taken for prepared."""
    source = HeldSource(parse_cards({"cards": cards(0, mode="mig"), "bootId": "boot-1"}, "test"), "n1")
    async with agent_of(api, source) as running:
        await running.until(lambda: bool(running.health()), "published")
        assert (api.spec() or {})["gpus"][0]["mode"] == "mig"
    async with agent_of(api, HeldSource(document(0, bootId="boot-2"), "n1")) as again:
        await again.until(lambda: (api.spec() or {})["gpus"][0]["mode"] == "shared", "whole")


async def test_r30_agents_whose_clocks_are_hours_apart_publish_the_same(api: InventoryApi) -> None:
    written = []
    for hours in (0, 9, -5000):
        async with agent_of(api, HeldSource(document(0, 1), "n1")) as running:
            running.clock.now += hours * 3600
            await running.until(lambda at=running: at.publisher.last_good is not None, "read")
            await running.until(lambda at=running: at.publisher.settled, "settled")
        written.append((api.applies, api.spec()))
    assert written[1:] == written[:-1]


async def test_a_missing_isolation_library_is_told_until_it_is_there(
    api: InventoryApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the source: this one has nothing to tell meanwhile."""
    library = tmp_path / "libvgpu.so"
    source, settings = HeldSource(document(0, 1), "n1"), NodeSettings(isolation_library=str(library))
    async with agent_of(api, source, settings, library_fault) as running:
        await running.until(lambda: "isolationError" in (api.spec() or {}), "told")
        assert f"{library} is not on this node" in (api.spec() or {})["isolationError"]
        assert len(running.health()) == 2
        running.clock.advance(30)  # looked at again, and not told again
        library.write_text("code")
        await running.until(lambda: "isolationError" not in (api.spec() or {}), "ended")
    told = [record.getMessage() for record in caplog.records if "node=n1" in record.getMessage()]
    assert [text.partition(" node=")[0] for text in told] == [
        "node takes nothing new",
        "the isolation library is there",
    ]


async def test_another_systems_plugin_brings_its_own_isolation_library(api: InventoryApi) -> None:
    settings = NodeSettings(plugin=Plugin.HAMI, isolation_library="/nowhere/libvgpu.so")
    async with agent_of(api, HeldSource(document(0, 1), "n1"), settings, library_fault) as running:
        await running.until(lambda: len(running.health()) == 2, "published")
        assert "isolationError" not in (api.spec() or {})


async def test_settings_that_change_are_published(api: InventoryApi) -> None:
    async with agent_of(api, HeldSource(document(0, 1), "n1")) as running:
        await running.until(lambda: len(running.health()) == 2, "published")
        running.agent.apply_settings(
            NodeSettings(slots=3, exclude_cards=ExcludedCards(uuids=frozenset({"GPU-1"})))
        )
        await running.until(lambda: list(running.health()) == ["GPU-0"], "one card")
        assert (api.spec() or {})["gpus"][0]["slots"] == 3


async def test_contradicting_cards_are_a_read_error_and_the_agent_goes_on(api: InventoryApi) -> None:
    source = HeldSource(document(0, 1), "n1")
    async with agent_of(api, source) as running:
        await running.until(lambda: len(running.health()) == 2, "published")
        source.replace(document(0, 0))
        await running.until(lambda: "same uuid" in (api.spec() or {}).get("readError", ""), "read error")
        source.replace(document(0))
        await running.until(lambda: list(running.health()) == ["GPU-0"], "goes on")


async def test_without_the_rule_could_not_read_would_overwrite_a_good_list(
    api: InventoryApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shows that R35's checks can fail: the rule they guard is switched off."""

    def overwriting(error: str, previous: InventorySpec | None) -> InventorySpec | None:
        return previous and previous.model_copy(update={"gpus": (), "read_error": error})

    monkeypatch.setattr("vgpu.agent.node_agent.unreadable", overwriting)
    source = HeldSource(document(0, 1), "n1")
    async with agent_of(api, source) as running:
        await running.until(lambda: len(running.health()) == 2, "published")
        source.replace(document(readError="gone"))
        await running.until(lambda: running.health() == {}, "overwritten")


class FailingSource(HeldSource):
    """Cards that can be read until a failure is set."""

    failure: SourceError | None = None

    async def read(self) -> CardReading | None:
        if self.failure is not None:
            raise self.failure
        return await super().read()


@pytest.mark.parametrize(
    ("failure", "want"),
    [
        (NothingToRead("no NVIDIA card"), ("INFO", "no cards here node=n1 problem=no NVIDIA card")),
        (SourceError("no library"), ("ERROR", "cards cannot be read node=n1 problem=no library")),
    ],
    ids=["a CPU node", "a fault"],
)
async def test_r35_a_cpu_node_says_once_what_it_means_and_a_fault_is_an_error(
    api: InventoryApi, caplog: pytest.LogCaptureFixture, failure: SourceError, want: tuple[str, str]
) -> None:
    source = FailingSource(document(0), "n1")
    source.failure = failure
    with caplog.at_level("INFO", logger="vgpu.agent.node_agent"):
        async with agent_of(api, source) as running:
            await running.until(lambda: bool(caplog.records), "told")
            source.failure = None
            await running.until(lambda: api.spec() is not None, "read at last, after many failures")
            assert [(record.levelname, record.getMessage()) for record in caplog.records] == [want]
            source.failure = failure
            source.report(HealthEvent(None, None, EventKind.CHANGED))
            await running.until(lambda: "readError" in (api.spec() or {}), "the failure published")
    assert caplog.records[-1].levelname == "ERROR", "cards that were published and went are a fault"
