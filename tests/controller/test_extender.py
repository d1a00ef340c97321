"""The four verbs over HTTP, asked as kube-scheduler asks them."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import ClientConnectionError, ClientSession

from tests.controller.cluster_facts import CARD_MIB, bound, index_of, inventory, ledger_of, node
from tests.controller.kubernetes_json import Json, container_json, pod_json
from tests.controller.pod_store import PodStore
from vgpu.controller import pki, wire
from vgpu.controller.binder import Binder, BinderParts
from vgpu.controller.clock import SystemClock
from vgpu.controller.extender import Extender, ExtenderParts
from vgpu.controller.http_server import serve
from vgpu.controller.translate import Translator
from vgpu.core.facts import PodFact
from vgpu.core.filtering import FilterAnswer, NodeFilter
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Policies
from vgpu.core.presets import PresetSettings
from vgpu.settings import OperatorSettings


@dataclass
class Bench:
    ledger: Ledger
    store: PodStore
    session: ClientSession
    url: str
    refusal: str = ""
    answered: list[tuple[str, bool]] = field(default_factory=list)
    observed: list[str] = field(default_factory=list)

    async def post(self, verb: str, body: Json) -> tuple[int, Any]:
        async with self.session.post(f"{self.url}/v1/{verb}", json=body) as response:
            return response.status, await response.json()

    async def filter(self, names: list[str], name: str = "p1") -> Any:
        status, answer = await self.post("filter", {"Pod": gpu_pod(name), "Nodes": None, "NodeNames": names})
        assert status == 200
        return answer


def gpu_pod(name: str = "p1", memory: str = "4096") -> Json:
    return pod_json(name, spec={"containers": [container_json(number="1", memory=memory)]})


def extender_of(it: Bench, deadline_seconds: float) -> Extender:
    translator, index = Translator(OperatorSettings(), lambda name: None), index_of(it.ledger)

    def note(pod: PodFact, answer: FilterAnswer) -> None:
        it.answered.append((pod.name, answer.missed))

    binder = Binder(
        BinderParts(
            ledger=it.ledger,
            policies=Policies(),
            presets=PresetSettings(),
            writer=it.store,
            reader=it.store,
            decode_pod=translator.decode_pod,
            clock=SystemClock(),
            deadline_seconds=9,
            changed=lambda: None,
        )
    )
    return Extender(
        ExtenderParts(
            ledger=it.ledger,
            index=index,
            node_filter=NodeFilter(index, it.ledger, 32),
            translator=translator,
            binder=binder,
            clock=SystemClock(),
            refusal=lambda: it.refusal,
            answered=note,
            observe=lambda verb, seconds: it.observed.append(verb),
            deadline_seconds=deadline_seconds,
        )
    )


@asynccontextmanager
async def bench(
    *nodes: str, deadline_seconds: float = 30, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Bench]:
    async with ClientSession() as session:
        it = Bench(ledger_of(*nodes), PodStore(), session, "")
        runner = await serve(extender_of(it, deadline_seconds).application(), ("127.0.0.1", 0), tls)
        it.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.port}"
        try:
            yield it
        finally:
            await runner.cleanup()


async def test_a_pod_goes_from_filter_over_prioritize_to_bind() -> None:
    async with bench("n1", "n2") as it:
        it.store.add("p1", spec={"containers": [container_json(number="1", memory="4096")]})
        it.ledger.put_pod(bound("old", "n2"))
        answer = await it.filter(["n1", "n2"])
        assert answer["NodeNames"] == ["n2", "n1"], "the fuller node first"
        _, scores = await it.post("prioritize", {"Pod": gpu_pod(), "NodeNames": ["n1", "n2"]})
        assert {row["Host"]: row["Score"] for row in scores}.keys() == {"n1", "n2"}
        bind = {"PodName": "p1", "PodNamespace": "team", "PodUID": "uid-p1", "Node": "n2"}
        assert await it.post("bind", bind) == (200, {"Error": ""})
        assert it.store.pods["team", "p1"]["spec"]["nodeName"] == "n2"
        assert it.observed == ["filter", "prioritize", "bind"]


async def test_a_pod_that_the_watch_has_not_shown_is_answered_from_the_request() -> None:
    async with bench("n1") as it:
        assert it.ledger.pod("uid-p1") is None
        assert (await it.filter(["n1"]))["NodeNames"] == ["n1"]


async def test_full_nodes_are_refused_with_a_reason_and_a_missed_sample_is_told() -> None:
    async with bench("n1", "n2") as it:
        it.ledger.put_pod(bound("old", "n1", memory_mib=CARD_MIB))
        answer = await it.filter(["n1"])
        assert answer["NodeNames"] == []
        assert "4096 MiB" in answer["FailedAndUnresolvableNodes"]["n1"]
        assert it.answered == [("p1", True)]


async def test_callers_that_send_whole_nodes_are_answered_in_kind_and_cause_nothing() -> None:
    async with bench("n1", "n2") as it:
        items = [{"metadata": {"name": "n2", "labels": {"a": "b"}}}, {"metadata": {"name": "ghost"}}]
        before = it.ledger.version
        status, answer = await it.post("filter", {"Pod": gpu_pod(), "Nodes": {"items": items}, "NodeNames": None})
        assert status == 200
        assert answer["NodeNames"] is None
        assert answer["Nodes"]["items"] == [items[0]]
        _, answer = await it.post("filter", {"Pod": gpu_pod(), "Nodes": {"items": items[1:]}})
        assert answer["Nodes"]["items"] == []
        assert list(answer["FailedAndUnresolvableNodes"]) == ["ghost"]
        assert (it.answered, it.ledger.version) == ([], before)
        _, scores = await it.post("prioritize", {"Pod": gpu_pod(), "Nodes": {"items": items}})
        assert [row["Host"] for row in scores] == ["n2", "ghost"]


async def test_preempt_keeps_only_nodes_where_no_gpu_pod_would_go() -> None:
    async with bench("full", "free", "taken") as it:
        it.ledger.put_pod(bound("a", "full", memory_mib=CARD_MIB))
        it.ledger.put_pod(bound("b", "taken"))
        victims = {
            "full": {"Pods": [{"UID": "uid-a"}]},
            "taken": {"Pods": [{"UID": "uid-b"}, {"UID": "plain"}]},
            "free": {"Pods": [{"UID": "plain"}], "NumPDBViolations": 1},
        }
        body = {"Pod": gpu_pod(), "NodeNameToMetaVictims": victims, "NodeNameToVictims": None}
        _, answer = await it.post("preempt", body)
        want = {"free": {"Pods": [{"UID": "plain"}], "NumPDBViolations": 1}}
        assert answer == {"NodeNameToMetaVictims": want}
        del victims["free"]
        assert (await it.post("preempt", body))[1] == {"NodeNameToMetaVictims": {}}


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind"])
async def test_who_does_not_lead_answers_503_and_closes_the_connection(verb: str) -> None:
    async with bench("n1") as it:
        it.refusal = "not leading"
        async with it.session.post(f"{it.url}/v1/{verb}", json={}) as response:
            assert response.status == 503
            assert response.headers["Connection"] == "close"
            assert await response.json() == {"Error": "not leading"}
        it.refusal = ""
        assert (await it.filter(["n1"]))["NodeNames"] == ["n1"]


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind"])
@pytest.mark.parametrize("body", [b"", b"{", b"null", b"[1]", b'{"Pod": 1}', b"\x00" * 100], ids=str)
async def test_bad_bodies_are_a_clear_400_and_the_next_request_is_answered(verb: str, body: bytes) -> None:
    async with bench("n1") as it:
        async with it.session.post(f"{it.url}/v1/{verb}", data=body) as response:
            assert response.status == 400
            assert "Args" in (await response.json())["Error"]
        assert (await it.filter(["n1"]))["NodeNames"] == ["n1"]


async def test_bodies_beyond_the_limit_are_refused() -> None:
    async with bench("n1") as it:
        huge = b" " * (wire.MAX_BODY_BYTES + 1)
        async with it.session.post(f"{it.url}/v1/filter", data=huge) as response:
            assert response.status == 413
        assert (await it.filter(["n1"]))["NodeNames"] == ["n1"]


async def test_a_request_that_does_not_arrive_is_answered_with_503() -> None:
    async with bench("n1", deadline_seconds=0.05) as it:
        host, port = it.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        assert b"503" in await reader.readline()
        writer.close()


async def test_odd_numbers_are_the_pods_own_refusal_and_the_next_pod_is_answered() -> None:
    async with bench("n1") as it:
        for number in ("-1", "9" * 40, "1e99999", "NaN", ""):
            bad = pod_json("bad", spec={"containers": [container_json(number=number)]})
            status, answer = await it.post("filter", {"Pod": bad, "NodeNames": ["n1"]})
            assert status == 200
            assert answer["FailedAndUnresolvableNodes"]["n1"] != "" or number == ""
        assert (await it.filter(["n1"]))["NodeNames"] == ["n1"]


async def test_a_node_that_appears_is_given_at_the_next_question() -> None:
    async with bench("n1") as it:
        it.ledger.put_pod(bound("old", "n1", memory_mib=CARD_MIB))
        assert (await it.filter(["n1", "n2"]))["NodeNames"] == []
        it.ledger.put_node(node("n2"))
        it.ledger.put_inventory(inventory("n2"))
        assert (await it.filter(["n1", "n2"]))["NodeNames"] == ["n2"]


async def test_other_paths_and_methods_are_not_found() -> None:
    async with bench("n1") as it:
        async with it.session.get(f"{it.url}/v1/filter") as response:
            assert response.status == 405
        async with it.session.post(f"{it.url}/v2/filter", json={}) as response:
            assert response.status == 404


async def test_only_callers_with_a_certificate_of_our_ca_are_answered() -> None:
    now = datetime.now(UTC)
    ours, foreign = pki.create_authority(now), pki.create_authority(now)
    server = pki.server_tls(pki.issue_server(ours, "vgpu-system", now))
    known = pki.client_tls(pki.issue_client(ours, now))
    stranger = pki.client_tls(pki.issue_client(foreign, now))
    nobody = ssl.create_default_context()
    for context in (known, stranger, nobody):
        context.check_hostname, context.verify_mode = (
            False,
            ssl.CERT_NONE,
        )  # the caller's own check is not at issue
    body = {"Pod": gpu_pod(), "NodeNames": ["n1"]}
    async with bench("n1", tls=server) as it:
        async with it.session.post(f"{it.url}/v1/filter", json=body, ssl=known) as response:
            assert (await response.json())["NodeNames"] == ["n1"]
        for context in (stranger, nobody):
            with pytest.raises(ClientConnectionError):
                await it.session.post(f"{it.url}/v1/filter", json=body, ssl=context)
