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
from vgpu.core.preempt.gang_desk import GangDesk
from vgpu.core.preempt.gang_state import Rules
from vgpu.core.preempt.pod_groups import GroupKind
from vgpu.core.preempt.roster import Roster
from vgpu.core.terms import GroupName, GroupSource, OwnerRef, PodTerms
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
        gangs=GangDesk(ledger, roster, Rules(names.SCHEDULER_NAME, lift_gates=False)),
        groups=roster.gangs,
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


def in_gang(minimum: int) -> dict[str, Any]:
    """The manifest of a pod of gang g."""
    labels = {names.POLICY_GANG: "g", names.POLICY_GANG_MIN: str(minimum)}
    return {**MANIFEST, "metadata": {**MANIFEST["metadata"], "labels": labels}}


def member(name: str, minimum: int = 2, **changes: Any) -> PodFact:
    """A pod of gang g that waits."""
    terms = PodTerms(OWNED.owner, GroupName(GroupSource.LABEL, "team", "g"), minimum)
    return pending(name, CARD_MIB, terms=terms, priority=100, **changes)


async def asked(it: Bench, pod: str) -> dict[str, Any]:
    status, text = await it.get(f"/what-if?pod=team/{pod}")
    assert status == 200, text
    answer: dict[str, Any] = json.loads(text)
    return answer


async def asked_of(it: Bench, manifest: dict[str, Any], copies: int = 1) -> dict[str, Any]:
    status, text = await it.post(manifest, f"/what-if?copies={copies}")
    assert status == 200, text
    answer: dict[str, Any] = json.loads(text)
    return answer


async def test_a_gang_that_is_not_whole_fits_nowhere_and_nobody_goes_for_it() -> None:
    async with bench("node-a", "node-b") as it:
        it.put(member("g-0"))
        answer = await asked(it, "g-0")
        assert (answer["outcome"], answer["reason"]) == ("No", "GangIncomplete")
        assert answer["answer"] == "it waits; nobody would be evicted for it"
        assert "2 pods at once, and only 1 are there" in answer["message"]
        assert answer["helps"]


async def test_a_gang_is_answered_at_once_and_all_that_it_wants_is_told() -> None:
    async with bench("node-a", "node-b") as it:
        it.put(low("a", "node-a"), low("b", "node-b"), member("g-0"), member("g-1"))
        answer = await asked(it, "g-1")
        assert [one["pod"] for one in answer["pods"]] == ["team/g-0", "team/g-1"]
        assert answer["answer"] == "2 pods would be evicted, and gang team/g starts on node-a, node-b"
        text = (await it.get("/what-if?pod=team/g-1&output=text"))[1]
        assert "team/g-0 and 1 more of gang team/g" in text
        assert "2 cards: 2 pods of 1 card of 40960 MiB each" in text


async def test_for_a_further_member_of_a_gang_that_runs_nobody_goes() -> None:
    async with bench("node-a", "node-b", "node-c") as it:
        terms = member("x").terms
        it.put(*(bound(f"g-{i}", f"node-{n}", memory_mib=CARD_MIB, terms=terms) for i, n in enumerate("ab")))
        it.put(member("g-2"))
        answer = await asked(it, "g-2")
        assert (answer["outcome"], answer["answer"]) == (
            "FitsNow",
            "it fits now on node-c; nobody is evicted for it",
        )
        it.put(low("old", "node-c"))
        answer = await asked(it, "g-2")
        assert (answer["outcome"], answer["reason"]) == ("No", "GangSurplus")


async def test_pods_that_do_not_exist_are_decided_on_one_after_another() -> None:
    async with bench("node-a", "node-b", "node-c") as it:
        it.put(*(low(f"old-{n}", f"node-{n}") for n in "ab"), low("same", "node-c", priority=100))
        answer = await asked_of(it, MANIFEST, copies=3)
        assert answer["answer"] == "2 pods would be evicted, and 2 of 3 pods start on node-a, node-b; 1 waits"
        assert {one["pod"] for one in answer["victims"]} == {"team/old-a", "team/old-b"}
        assert len({card["uuid"] for seat in answer["seats"] for card in seat["cards"]}) == 2
        assert (answer["waits"], answer["reason"]) == (1, "NoLowerRank")
        alone = await asked_of(it, MANIFEST)
        assert alone["answer"].startswith("1 pod would be evicted, and it starts on node-")
        assert answer["cost"]["workloads"] == 1, "both are of one controller"


async def test_a_gang_that_does_not_exist_is_answered_as_a_gang() -> None:
    async with bench("node-a", "node-b") as it:
        it.put(low("a", "node-a"), low("b", "node-b"))
        answer = await asked_of(it, in_gang(2), copies=2)
        assert answer["answer"] == "2 pods would be evicted, and gang team/g starts on node-a, node-b"
        assert (await asked_of(it, in_gang(2)))["reason"] == "GangIncomplete"
        assert (await asked_of(it, in_gang(3), copies=2))["reason"] == "GangIncomplete"
        it.put(member("g-0"))
        answer = await asked_of(it, in_gang(2))
        assert [one["pod"] for one in answer["pods"]] == ["team/g-0", "team/new"]


async def test_pods_whose_pod_group_is_not_there_do_not_start() -> None:
    async with bench("node-a") as it:
        it.roster.gangs.put_kind(GroupSource.VOLCANO, GroupKind.READ)
        annotations = {"scheduling.k8s.io/group-name": "pg"}
        named = {**MANIFEST, "metadata": {**MANIFEST["metadata"], "annotations": annotations}}
        answer = await asked_of(it, named, copies=2)
        assert (answer["outcome"], answer["reason"]) == ("No", "PodGroupNotFound")
        terms = PodTerms(OWNED.owner, GroupName(GroupSource.VOLCANO, "team", "pg"))
        it.put(pending("there", terms=terms))
        answer = await asked(it, "there")
        assert answer["outcome"] == "No"
        assert "no PodGroup pg" in answer["message"]
        it.roster.gangs.put_kind(GroupSource.VOLCANO, GroupKind.ABSENT)
        assert (await asked_of(it, named))["outcome"] == "FitsNow"


async def test_more_pods_of_a_gang_than_it_needs_are_told_apart() -> None:
    async with bench("node-a", "node-b") as it:
        it.put(low("a", "node-a"), low("b", "node-b"))
        answer = await asked_of(it, in_gang(2), copies=4)
        assert len(answer["victims"]) == 2
        [note] = answer["notes"]
        assert "starts without team/new3 and 1 more" in note


async def test_many_pods_are_answered_for_the_first_of_them_and_that_is_said() -> None:
    async with bench("node-a") as it:
        answer = await asked_of(it, MANIFEST, copies=100)
        assert len(answer["pods"]) == 32
        assert any("only the first 32 of 100 pods" in note for note in answer["notes"])


async def test_a_number_of_pods_that_is_none_gets_a_clear_answer() -> None:
    async with bench("node-a") as it:
        for copies in ("0", "x", "-1", "1001", "9" * 50):
            status, text = await it.post(MANIFEST, f"/what-if?copies={copies}")
            assert status == 400, copies
            assert "copies" in text


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
            ({"kind": "\ud800", "spec": {}}, r"not \ud800"),
            ({"kind": "J" * 9000, "spec": {}}, "JJJ ..."),
            ({"kind": "Pod"}, "metadata and spec"),
            ({"kind": "Pod", "metadata": "x", "spec": {}}, "metadata and spec"),
            ({"kind": "Pod", "spec": {"containers": 5}}, "cannot be read"),
            (plain, "asks for no GPU"),
        ):
            status, text = await it.post(manifest)
            assert status == 400, manifest
            assert word in text, manifest
            assert len(text) < 2000


async def test_where_nothing_can_be_asked_the_answer_says_so() -> None:
    pages = WhatIfPages(None)
    app = web.Application()
    app.router.add_get("/what-if", pages.get)
    async with TestClient(TestServer(app)) as client:
        answer = await client.get("/what-if?pod=team/new")
        assert answer.status == 503
        assert "preemption" in await answer.text()
