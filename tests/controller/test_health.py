"""The operator's plain pages: readiness, metrics, why a pod waits, what a node holds."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp.test_utils import TestClient, TestServer

from tests.controller.cluster_facts import CARD_MIB, bound, index_of, ledger_of, node, pending
from vgpu import names
from vgpu.controller import health
from vgpu.controller.answers import Answers
from vgpu.controller.metrics import Metrics, Snapshot, WatchRow
from vgpu.core.ledger import Ledger
from vgpu.core.reasons import Reason, Refusal

GOOD = WatchRow(age_seconds=1, relists=0, connected=True, synced=True)


@dataclass
class Bench:
    ledger: Ledger
    problems: list[str] = field(default_factory=list)
    client: "TestClient | None" = None  # type: ignore[type-arg]

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        assert self.client is not None
        answer = await self.client.get(path, headers=headers)
        return answer.status, await answer.text()


@asynccontextmanager
async def bench(*nodes: str) -> AsyncIterator[Bench]:
    ledger = ledger_of(*nodes)
    it = Bench(ledger)
    answers = Answers(ledger, index_of(ledger), names.SCHEDULER_NAME)

    def snapshot() -> Snapshot:
        views = tuple(view for name in sorted(ledger.nodes()) if (view := ledger.view(name)) is not None)
        return Snapshot(
            views=views,
            pending=answers.pending_by_reason(),
            writes={("create", "pods/binding", "ok"): 3},
            watches={"pods": GOOD},
            version=ledger.version,
            recounts=ledger.recounts,
            leading=True,
            serving=False,
        )

    metrics = Metrics()
    metrics.observe("filter", 0.002)
    sources = health.Sources(
        ledger,
        answers,
        metrics,
        snapshot,
        lambda: {"pods": GOOD},
        lambda: it.problems,
        owed=lambda: {"leading": True, "debts": []},
    )
    async with TestClient(TestServer(health.application(sources))) as client:
        it.client = client
        yield it


async def test_a_replica_is_ready_while_nothing_is_wrong() -> None:
    async with bench() as it:
        assert await it.get("/readyz") == (200, "ok\n")
        it.problems.append("pods: not listed yet")
        assert await it.get("/readyz") == (503, "pods: not listed yet\n")
        assert (await it.get("/healthz"))[0] == 200


def test_a_watch_that_is_silent_unconnected_or_unlisted_is_a_problem() -> None:
    rows = {
        "a": WatchRow(1, 0, connected=True, synced=False, problem="404 no such kind"),
        "b": WatchRow(1, 0, connected=False, synced=True),
        "c": WatchRow(91, 0, connected=True, synced=True),
        "d": WatchRow(89, 0, connected=True, synced=True),
    }
    assert health.watch_problems(rows, 90) == [
        "a: not listed yet (404 no such kind)",
        "b: the watch is not connected",
        "c: the watch has been silent for 91 s",
    ]


async def test_a_pending_pod_is_explained_per_node_and_card_as_json() -> None:
    async with bench("node-a", "node-b") as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        it.ledger.put_pod(pending("new"))
        status, text = await it.get("/explain?pod=team/new")
        answer = json.loads(text)
        assert status == 200
        assert answer["wanted"] == "1 card of 4096 MiB"
        assert answer["fitting"] == ["node-b"]
        assert [(node["node"], node["fits"], node["cards"][0]["why"]) for node in answer["nodes"]] == [
            ("node-a", False, "ExclusiveHolder"),
            ("node-b", True, ""),
        ]


async def test_the_same_answer_is_a_table_for_people() -> None:
    async with bench("node-a") as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        it.ledger.put_pod(pending("new"))
        status, text = await it.get("/explain?pod=team/new", Accept="text/plain")
        assert status == 200
        assert "Reason:  ExclusiveHolder" in text
        assert any(line.split()[:2] == ["node-a", "no"] for line in text.splitlines())


async def test_what_is_still_owed_is_a_page() -> None:
    async with bench() as it:
        status, text = await it.get("/debts")
        assert (status, json.loads(text)) == (200, {"leading": True, "debts": []})
        assert "/debts" in (await it.get("/"))[1]


async def test_wrong_questions_get_clear_answers() -> None:
    async with bench("node-a") as it:
        assert await it.get("/explain") == (400, "say which pod: /explain?pod=NAMESPACE/NAME\n")
        assert await it.get("/explain?pod=name-alone") == (400, "say which pod: /explain?pod=NAMESPACE/NAME\n")
        assert await it.get("/explain?pod=team/none") == (404, "no pod team/none is known here\n")
        assert await it.get("/nodes/none") == (404, "no node or inventory none is known here\n")


async def test_an_output_that_does_not_exist_is_refused_and_a_given_one_wins_over_the_header() -> None:
    async with bench("node-a") as it:
        it.ledger.put_pod(pending("new"))
        assert await it.get("/explain?pod=team/new&output=xml") == (400, "output 'xml' is none of json, text\n")
        _, text = await it.get("/explain?pod=team/new&output=json", Accept="text/plain")
        assert json.loads(text)["fitting"] == ["node-a"]


async def test_the_pages_and_the_nodes_are_listed() -> None:
    async with bench("node-b", "node-a") as it:
        it.ledger.put_node(node("node-b", slots_allocatable=frozenset()))
        status, text = await it.get("/")
        assert status == 200
        for page in ("/explain?pod=NAMESPACE/NAME", "/nodes", "/metrics", "/healthz", "/readyz"):
            assert page in text
        status, text = await it.get("/nodes")
        assert status == 200
        assert [line.split() for line in text.splitlines()] == [
            ["NODE", "CARDS", "STATE"],
            ["node-a", "1", "open"],
            ["node-b", "1", "NoAllocatable"],
        ]


async def test_a_refused_pod_has_no_node_that_says_yes() -> None:
    async with bench("node-a") as it:
        refusal = Refusal(Reason.INVALID_REQUEST, "volcano.sh/vgpu-number: -1 is negative")
        it.ledger.put_pod(pending("bad", request=None, refusal=refusal))
        _, text = await it.get("/explain?pod=team/bad")
        answer = json.loads(text)
        assert (answer["reason"], answer["fitting"], answer["nodes"]) == ("InvalidRequest", [], [])
        _, text = await it.get("/explain?pod=team/bad&output=text")
        assert "Message: volcano.sh/vgpu-number: -1 is negative" in text
        assert "yes" not in text


async def test_a_bound_pod_is_explained_by_where_it_is() -> None:
    async with bench("node-a") as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        _, text = await it.get("/explain?pod=team/old&output=text")
        assert "Message: bound to node-a on cards GPU-node-a-0 (whole); Running" in text
        assert "FITS" not in text


async def test_the_holder_of_a_whole_card_is_named() -> None:
    async with bench("node-a") as it:
        it.ledger.put_pod(bound("old", "node-a", memory_mib=CARD_MIB))
        it.ledger.put_pod(pending("new"))
        _, text = await it.get("/explain?pod=team/new&output=text")
        assert "ExclusiveHolder: held whole by team/old" in text
        assert "best node node-a: 0 of 10 slots free, its freest card is held whole by team/old" in text


async def test_a_nodes_view_shows_its_holders() -> None:
    async with bench("node-a") as it:
        it.ledger.put_pod(bound("old", "node-a"))
        status, text = await it.get("/nodes/node-a")
        card = json.loads(text)["cards"][0]
        assert status == 200
        assert card["memoryMiB"] == {"total": CARD_MIB, "used": 4096}
        assert card["holders"][0]["pod"] == "team/old"


async def test_metrics_show_cards_that_exist_and_forget_those_that_do_not() -> None:
    async with bench("node-a") as it:
        it.ledger.put_pod(bound("old", "node-a"))
        it.ledger.put_pod(pending("new", request=None, wants_gpus=True))
        _, text = await it.get("/metrics")
        assert 'vgpu_card_memory_used_mib{node="node-a",uuid="GPU-node-a-0"} 4096' in text
        assert 'vgpu_card_memory_mib{node="node-a",uuid="GPU-node-a-0"} 40960' in text
        assert 'vgpu_writes_total{code="ok",resource="pods/binding",verb="create"} 3.0' in text
        assert 'vgpu_watch_age_seconds{kind="pods"} 1.0' in text
        assert 'vgpu_extender_seconds_count{verb="filter"} 1.0' in text
        it.ledger.drop_pod("uid-old")
        it.ledger.drop_inventory("node-a")
        it.ledger.drop_node("node-a", "uid-node-a")
        _, text = await it.get("/metrics")
        assert "GPU-node-a-0" not in text
