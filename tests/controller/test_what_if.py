"""What would happen, asked over HTTP: of a pod that waits, of one that does not exist, and asked wrongly."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from tests.controller.cluster_facts import CARD_MIB, bound, inventory, ledger_of, pending
from vgpu import names
from vgpu.controller.translate import Translator
from vgpu.controller.what_if import WhatIf, WhatIfParts
from vgpu.controller.what_if_pages import WhatIfPages
from vgpu.core.facts import PodFact
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.decision_world import NOTHING_LEARNT, Avoid
from vgpu.core.preempt.facts import Limits, QueueFact
from vgpu.core.preempt.roster import Roster
from vgpu.core.terms import OwnerRef, PodTerms
from vgpu.settings import OperatorSettings

NOW = 1_800_000_000
OWNED = PodTerms(OwnerRef("rs", "ReplicaSet", "rs"), started_seconds=NOW - 3600)
MANIFEST: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "new", "namespace": "team"},
    "spec": {
        "schedulerName": names.SCHEDULER_NAME,
        "priority": 100,
        "containers": [{"name": "main", "resources": {"limits": {names.VOLCANO_NUMBER: 1}}}],
    },
}


@dataclass
class Bench:
    ledger: Ledger
    roster: Roster
    leading: bool = True
    learned: dict[str, Avoid] = field(default_factory=dict)
    client: "TestClient | None" = None  # type: ignore[type-arg]

    def put(self, *pods: PodFact) -> None:
        for pod in pods:
            self.ledger.put_pod(pod)
            self.roster.put_pod(pod)

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        assert self.client is not None
        answer = await self.client.get(path, headers=headers)
        return answer.status, await answer.text()

    async def post(self, manifest: Any, path: str = "/what-if") -> tuple[int, str]:
        assert self.client is not None
        body = manifest if isinstance(manifest, str) else json.dumps(manifest)
        answer = await self.client.post(path, data=body)
        return answer.status, await answer.text()


@asynccontextmanager
async def bench(*nodes: str) -> AsyncIterator[Bench]:
    ledger = ledger_of(*nodes)
    roster = Roster(ledger)
    for name in nodes:
        ledger.put_inventory(inventory(name))
        roster.cards_changed(name)
    roster.put_queue(QueueFact("default", deserved=Limits(cards_thousandths=0)))
    it = Bench(ledger, roster)
    translator = Translator(OperatorSettings(), lambda _: None)
    parts = WhatIfParts(
        ledger=ledger,
        queue_of=roster.queue_of,
        world=roster.world,
        together=lambda world, uid: (),
        learned=lambda uid: it.learned.get(uid, NOTHING_LEARNT),
        decode=translator.decode_pod,
        now_seconds=lambda: NOW,
        scheduler_name=names.SCHEDULER_NAME,
        leading=lambda: it.leading,
    )
    pages = WhatIfPages(WhatIf(parts))
    app = web.Application()
    app.router.add_get("/what-if", pages.get)
    app.router.add_post("/what-if", pages.post)
    async with TestClient(TestServer(app)) as client:
        it.client = client
        yield it


def low(name: str, node: str, **changes: Any) -> PodFact:
    return bound(name, node, memory_mib=CARD_MIB, terms=OWNED, **changes)


async def test_s85_a_pod_that_waits_is_told_who_would_go_and_why_and_what_is_lost() -> None:
    async with bench("node-a") as it:
        it.put(low("old", "node-a"), pending("new", priority=100))
        status, text = await it.get("/what-if?pod=team/new")
        answer = json.loads(text)
        assert (status, answer["outcome"]) == (200, "Plan")
        [victim] = answer["victims"]
        assert (victim["pod"], victim["rule"], victim["lostGpuSeconds"]) == ("team/old", "WithinQueue", 3600)
        assert "its priority 0 is below 100" in victim["why"]
        assert answer["seats"][0]["cards"][0]["uuid"] == "GPU-node-a-0"
        assert answer["exact"] is True


async def test_the_same_answer_is_text_for_people() -> None:
    async with bench("node-a") as it:
        it.put(low("old", "node-a"), pending("new", priority=100))
        status, text = await it.get("/what-if?pod=team/new&output=text")
        assert status == 200
        assert "1 pod would be evicted, and it starts on node-a" in text
        assert any(line.split()[:2] == ["team/old", "node-a"] for line in text.splitlines())


async def test_a_no_says_the_reason_and_what_would_help() -> None:
    async with bench("node-a") as it:
        it.put(low("old", "node-a"), pending("new"))
        answer = json.loads((await it.get("/what-if?pod=team/new"))[1])
        assert (answer["outcome"], answer["reason"]) == ("No", "NoLowerRank")
        assert "PriorityClass" in answer["helps"]
        assert answer["victims"] == []


async def test_a_pod_that_does_not_exist_is_answered_and_leaves_nothing_behind() -> None:
    async with bench("node-a") as it:
        it.put(low("old", "node-a"))
        before, version = it.roster.world(), it.ledger.version
        answer = json.loads((await it.post(MANIFEST))[1])
        assert [one["pod"] for one in answer["victims"]] == ["team/old"]
        assert answer["pods"][0]["pod"] == "team/new"
        assert it.roster.world() == before
        assert it.ledger.version == version
        assert it.ledger.find_pod("team", "new") is None


async def test_a_class_whose_value_is_not_known_is_said_to_count_as_nought() -> None:
    async with bench("node-a") as it:
        spec = {key: value for key, value in MANIFEST["spec"].items() if key != "priority"}
        answer = json.loads((await it.post({**MANIFEST, "spec": {**spec, "priorityClassName": "high"}}))[1])
        assert any("priority 0 is assumed" in note and "high" in note for note in answer["notes"])


async def test_what_an_earlier_plan_taught_counts() -> None:
    async with bench("node-a") as it:
        it.put(low("old", "node-a"), pending("new", priority=100))
        it.learned["uid-new"] = Avoid(victims=frozenset({"uid-old"}))
        assert json.loads((await it.get("/what-if?pod=team/new"))[1])["outcome"] == "No"


async def test_a_replica_that_does_not_lead_says_what_it_may_not_know() -> None:
    async with bench("node-a") as it:
        it.put(pending("new"))
        assert json.loads((await it.get("/what-if?pod=team/new"))[1])["notes"] == []
        it.leading = False
        [note] = json.loads((await it.get("/what-if?pod=team/new"))[1])["notes"]
        assert "does not lead" in note


async def test_a_pod_of_a_group_is_said_to_be_asked_about_alone() -> None:
    async with bench("node-a") as it:
        assert json.loads((await it.post(MANIFEST))[1])["notes"] == []
        grouped = {**MANIFEST, "metadata": {**MANIFEST["metadata"], "labels": {names.POLICY_GANG: "g"}}}
        [note] = json.loads((await it.post(grouped))[1])["notes"]
        assert "asked about alone" in note


async def test_wrong_questions_get_clear_answers() -> None:
    async with bench("node-a") as it:
        it.put(low("old", "node-a"))
        for path, status, word in (
            ("/what-if", 400, "say which pod"),
            ("/what-if?pod=alone", 400, "say which pod"),
            ("/what-if?pod=team/none", 404, "team/none"),
            ("/what-if?pod=team/old", 409, "bound to node-a"),
            ("/what-if?pod=team/old&output=xml", 400, "xml"),
        ):
            answer = await it.get(path)
            assert answer[0] == status, path
            assert word in answer[1]


async def test_a_manifest_that_is_no_pod_gets_a_clear_answer() -> None:
    async with bench("node-a") as it:
        plain = {**MANIFEST, "spec": {"containers": [{"name": "main"}]}}
        for manifest, word in (
            ("{", "no JSON"),
            ("[" * 100_000, "no JSON"),
            ("null", "NoneType"),
            ({"kind": "Pod", "metadata": {"namespace": {}}, "spec": {}}, "cannot be read"),
            ({"kind": "Pod", "metadata": {"name": "\ud800"}, "spec": {}}, "cannot be read"),
            ([1], "list"),
            ({"kind": "Job", "spec": {}}, "template"),
            ({"kind": "Pod"}, "metadata and spec"),
            ({"kind": "Pod", "metadata": "x", "spec": {}}, "metadata and spec"),
            ({"kind": "Pod", "spec": {"containers": 5}}, "cannot be read"),
            (plain, "asks for no GPU"),
        ):
            status, text = await it.post(manifest)
            assert status == 400, manifest
            assert word in text, manifest


async def test_where_nothing_can_be_asked_the_answer_says_so() -> None:
    pages = WhatIfPages(None)
    app = web.Application()
    app.router.add_get("/what-if", pages.get)
    async with TestClient(TestServer(app)) as client:
        answer = await client.get("/what-if?pod=team/new")
        assert answer.status == 503
        assert "preemption" in await answer.text()
