"""The command line against an API server and an operator that answer as the real ones do."""

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from typer.testing import CliRunner

from vgpu import names
from vgpu.cli.main import app, hoisted

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"}, "spec": {"containers": [{"name": "main"}]}}
ANSWER: dict[str, Any] = {
    "pods": [
        {"pod": "team/new", "uid": "u", "queue": "q", "priority": 9, "entitled": True, "wanted": "1 whole card"}
    ],
    "outcome": "No",
    "answer": "it waits; nobody would be evicted for it",
    "seats": [],
    "rule": "",
    "exact": True,
    "cost": None,
    "costWords": "",
    "victims": [],
    "stays": [],
    "spared": [{"reason": "NoLowerRank", "count": 3, "example": "team/a has priority 9"}],
    "mayGo": 0,
    "takes": [],
    "queues": [],
    "reason": "NoLowerRank",
    "message": "nobody may be evicted",
    "helps": "",
    "untilSeconds": 0,
    "nearestNodes": [],
    "notes": [],
}
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases/{names.LEASE_NAME}"
FOLDER = f"/api/v1/namespaces/{names.NAMESPACE}"
POD_PROXY = f"{FOLDER}/pods/op-1:8080/proxy"
SERVICE_PROXY = f"{FOLDER}/services/vgpu-operator-metrics:8080/proxy"


RIGHT = ["WithinQueue", "proven"]


def status(code: int, reason: str, message: str) -> tuple[int, dict[str, Any]]:
    return code, {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}


@dataclass
class Server:
    """Answers by path; `asked` is what came: method, path with query, body."""

    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    accounts: list[str] = field(default_factory=list)
    port: int = 0

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.text()
        self.accounts.append(request.headers.get("Authorization", ""))
        self.asked.append((request.method, request.path_qs, json.loads(body) if body else None))
        code, values = self.answers.get(request.path, status(404, "NotFound", f"{request.path} not found"))
        if values == "echo":
            values = json.loads(body)
        if isinstance(values, str):
            return web.Response(status=code, text=values)
        return web.json_response(values, status=code)

    @property
    def paths(self) -> list[str]:
        return [path.partition("?")[0] for _, path, _ in self.asked]


@pytest.fixture
def server() -> Iterator[Server]:
    """Runs beside the test, since the command line has an event loop of its own."""
    made, loop, ready = Server(), asyncio.new_event_loop(), threading.Event()

    async def start() -> web.AppRunner:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", made.answer)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        made.port = runner.addresses[0][1]
        return runner

    def run() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(start())
        ready.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(10)
    made.answers[LEASE] = (200, {"metadata": {"annotations": {names.LEASE_ADDRESS_ANNOTATION: "10.0.0.2:9443"}}})
    pods = [{"metadata": {"name": f"op-{i}"}, "status": {"podIP": f"10.0.0.{i + 1}"}} for i in range(2)]
    made.answers[f"{FOLDER}/pods"] = (200, {"items": pods})
    made.answers[f"{POD_PROXY}/what-if"] = (200, ANSWER)
    yield made
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


@pytest.fixture
def kubeconfig(server: Server, tmp_path: Path) -> Path:
    values = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.port}"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(values))
    return path


def run(kubeconfig: Path, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["--kubeconfig", str(kubeconfig), *arguments])
    return result.exit_code, result.output


def test_the_operator_that_leads_is_asked_and_its_answer_shown(server: Server, kubeconfig: Path) -> None:
    code, text = run(kubeconfig, "what-if", "team/new")
    assert code == 0, text
    assert "nobody would be evicted for it" in text
    assert server.paths[-1] == f"{POD_PROXY}/what-if"
    assert "pod=team%2Fnew" in server.asked[-1][1]


def test_json_is_the_operators_own_answer(server: Server, kubeconfig: Path) -> None:
    code, text = run(kubeconfig, "what-if", "new", "-n", "team", "-o", "json")
    assert (code, json.loads(text)) == (0, ANSWER)


def test_who_may_not_look_for_the_leader_asks_any_replica(server: Server, kubeconfig: Path) -> None:
    server.answers[LEASE] = status(403, "Forbidden", "no")
    server.answers[f"{SERVICE_PROXY}/what-if"] = (200, ANSWER)
    assert run(kubeconfig, "what-if", "team/new")[0] == 0
    assert server.paths[-1] == f"{SERVICE_PROXY}/what-if"


def test_who_may_not_reach_the_operator_is_told_another_way(server: Server, kubeconfig: Path) -> None:
    server.answers[f"{POD_PROXY}/what-if"] = status(403, "Forbidden", "cannot get pods/proxy")
    code, text = run(kubeconfig, "what-if", "team/new")
    assert code == 1
    assert "cannot get pods/proxy" in text
    assert "port-forward" in text


def test_no_operator_is_told_as_such(server: Server, kubeconfig: Path) -> None:
    del server.answers[LEASE]
    code, text = run(kubeconfig, "what-if", "team/new")
    assert code == 2
    assert "no operator was found" in text


def test_what_the_operator_refuses_is_told_in_its_words(server: Server, kubeconfig: Path) -> None:
    server.answers[f"{POD_PROXY}/what-if"] = (404, "no GPU pod team/new is known here\n")
    assert run(kubeconfig, "what-if", "team/new") == (1, "vgpu: no GPU pod team/new is known here\n")


def test_a_url_is_asked_without_a_kubeconfig(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    server.answers["/what-if"] = (200, ANSWER)
    url = f"http://127.0.0.1:{server.port}"
    result = CliRunner().invoke(app, ["--operator-url", url, "what-if", "team/new"])
    assert result.exit_code == 0, result.output
    assert server.paths == ["/what-if"]
    result = CliRunner().invoke(app, ["--operator-url", url, "plans"])
    assert result.exit_code == 2
    assert "needs the API server" in result.output


def test_a_manifest_is_asked_about_as_the_api_server_would_store_it(
    server: Server, kubeconfig: Path, tmp_path: Path
) -> None:
    """The class's value comes from a dry run, which stores nothing."""
    file = tmp_path / "pod.yaml"
    file.write_text(json.dumps(POD))
    stored = {**POD, "metadata": {"name": "new-x7", "namespace": "team"}, "spec": {**POD["spec"], "priority": 9}}
    server.answers["/api/v1/namespaces/team/pods"] = (201, stored)
    code, text = run(kubeconfig, "what-if", "-f", str(file), "-n", "team")
    assert code == 0, text
    posts = [(path, body) for method, path, body in server.asked if method == "POST"]
    assert posts[0][0] == "/api/v1/namespaces/team/pods?dryRun=All"
    assert posts[0][1]["metadata"] == {"namespace": "team", "generateName": "new-"}
    assert posts[1][1]["spec"]["priority"] == 9
    assert posts[1][1]["metadata"]["name"] == "new"


def test_all_pods_of_a_job_are_asked_about(server: Server, kubeconfig: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    job = {"kind": "Job", "metadata": {"name": "j"}, "spec": {"parallelism": 3, "template": {"spec": POD["spec"]}}}
    file.write_text(json.dumps(job))
    server.answers["/api/v1/namespaces/default/pods"] = (201, POD)
    three = [{**ANSWER["pods"][0], "cards": 2} for _ in range(3)]
    server.answers[f"{POD_PROXY}/what-if"] = (200, {**ANSWER, "pods": three, "alone": True, "waits": 3})
    code, text = run(kubeconfig, "what-if", "-f", str(file))
    assert code == 0, text
    assert "copies=3" in server.asked[-1][1]
    assert "team/new and 2 more like it" in text
    assert "6 cards: 3 pods of 1 whole card each" in text


def test_a_pod_that_would_be_refused_is_asked_about_all_the_same_and_the_refusal_told(
    server: Server, kubeconfig: Path, tmp_path: Path
) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(json.dumps(POD))
    server.answers["/api/v1/namespaces/default/pods"] = status(403, "Forbidden", "exceeded quota")
    code, text = run(kubeconfig, "what-if", "-f", str(file))
    assert code == 0, text
    assert "exceeded quota" in text


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["what-if"], "name a pod"),
        (["what-if", "a/b", "-f", "x"], "not both"),
        (["what-if", "a/b", "-n", "c"], "not in namespace c"),
        (["what-if", "-f", "/nowhere/x.yaml"], "cannot be read"),
        (["explain", "a/b", "-o", "xml"], "xml"),
    ],
    ids=["none", "both", "namespace", "file", "output"],
)
def test_a_wrong_command_ends_with_status_2_and_says_what_is_wrong(
    kubeconfig: Path, arguments: list[str], word: str
) -> None:
    code, text = run(kubeconfig, *arguments)
    assert code == 2
    assert word in text


def test_an_api_server_that_is_away_is_told_in_one_line(tmp_path: Path, server: Server, kubeconfig: Path) -> None:
    away = kubeconfig.read_text().replace(str(server.port), "1")
    kubeconfig.write_text(away)
    code, text = run(kubeconfig, "queues")
    assert code == 1
    assert "cannot be reached" in text
    assert len(text.splitlines()) == 1


def test_plans_show_who_waits_for_whom_and_what_must_come_back(server: Server, kubeconfig: Path) -> None:
    reservation = {
        "uid": "u-h", "node": "n1", "card": "GPU-0", "slots": 1, "memoryMiB": 1, "cores": 0, "exclusive": True,
    }  # fmt: skip
    plan = {
        "apiVersion": names.API_VERSION,
        "kind": names.PREEMPTION_KIND,
        "metadata": {"name": "h-1", "namespace": "team"},
        "spec": {
            "owner": {"kind": "Pod", "name": "h", "uids": ["u-h"]},
            "reservations": [reservation],
            "victims": [{"uid": "u-l", "namespace": "team", "name": "l", "node": "n1"}],
            "rule": "WithinQueue",
            "exact": True,
            "victimNames": "team/l",
        },
        "status": {
            "phase": "Draining",
            "waitsFor": "team/l",
            "evictionsSent": ["u-l"],
            "debts": [{"uid": "rs", "kind": "ReplicaSet", "namespace": "team", "name": "rs-l", "pods": 1}],
        },
    }
    server.answers[f"/apis/{names.API_VERSION}/{names.PREEMPTION_PLURAL}"] = (200, {"items": [plan]})
    code, text = run(kubeconfig, "plans")
    assert code == 0, text
    lines = [line.split() for line in text.splitlines()]
    assert ["team/h-1", "Draining", "Pod", "h", "n1", "team/l", "1", "of", "1", "team/l", *RIGHT] in lines
    assert ["team/rs-l", "ReplicaSet", "-", "1", "?", "-", "team/h-1"] in lines
    assert "What is still owed is not known: " in text, "the operator has no such page"


def test_plans_show_what_they_wait_for_now_where_the_operator_tells(server: Server, kubeconfig: Path) -> None:
    """What stands in their status was written once."""
    plans = [indebted("h-1"), indebted("h-2"), indebted("h-3")]
    plans[0]["status"] = {"phase": "Draining", "waitsFor": "team/gone to end"}
    del plans[1]["status"]
    plans[2]["status"] = {"phase": "Closed", "waitsFor": "team/gone to end"}
    server.answers[f"/apis/{names.API_VERSION}/{names.PREEMPTION_PLURAL}"] = (200, {"items": plans})
    waits = {"team/h-1": "1 more member of the gang", "team/h-2": "team/l to be asked to go"}
    plans[1]["spec"]["victims"] = [
        {"uid": f"u{n}", "namespace": "team", "name": f"l{n}", "node": "n1"} for n in range(3)
    ]
    answer = {"leading": True, "debts": [], "waits": waits, "asked": {"team/h-1": 0, "team/h-2": 1}}
    server.answers[f"{POD_PROXY}/debts"] = (200, answer)
    code, text = run(kubeconfig, "plans")
    assert code == 0, text
    row = {line.split()[0]: line for line in text.splitlines() if line.startswith("team/h-")}
    assert waits["team/h-1"] in row["team/h-1"]
    assert waits["team/h-2"] in row["team/h-2"]
    assert " Evicting " in row["team/h-2"]
    assert " 1 of 3 " in row["team/h-2"]
    assert "gone" not in text
    code, text = run(kubeconfig, "plans", "-o", "json")
    assert [plan.get("status", {}).get("waitsForNow") for plan in json.loads(text)] == [*waits.values(), None]
    del server.answers[f"{POD_PROXY}/debts"]
    code, text = run(kubeconfig, "plans")
    assert "WAITS FOR is what plans said last" in text
    assert text.count("team/gone to end") == 1


def indebted(name: str, **pods: int) -> dict[str, Any]:
    """A plan that is over, and what each workload has lost to it."""
    reservation = {"uid": "u", "node": "n1", "card": "GPU-0", "slots": 1, "memoryMiB": 1, "cores": 0}
    spec = {"owner": {"kind": "Pod", "name": "h", "uids": ["u"]}, "reservations": [reservation]}
    debts = [
        {"uid": f"uid-{who}", "kind": "Job", "namespace": "team", "name": who, "pods": lost}
        for who, lost in pods.items()
    ]
    return {
        "metadata": {"name": name, "namespace": "team"},
        "spec": {**spec, "rule": "WithinQueue", "exact": True},
        "status": {"phase": "Closed", "debts": debts},
    }


def test_plans_show_what_was_lost_and_what_of_it_is_still_owed(server: Server, kubeconfig: Path) -> None:
    items = [indebted("h-1", train=4, tune=1), indebted("h-2", train=2)]
    server.answers[f"/apis/{names.API_VERSION}/{names.PREEMPTION_PLURAL}"] = (200, {"items": items})
    owed = [
        {"plan": "team/h-1", "uid": "uid-train", "namespace": "team", "name": "train", "pods": 3},
        {"plan": "team/h-2", "uid": "uid-train", "namespace": "team", "name": "train", "pods": 2},
    ]
    server.answers[f"{POD_PROXY}/debts"] = (200, {"leading": True, "debts": owed})
    code, text = run(kubeconfig, "plans")
    assert code == 0, text
    lines = [line.split() for line in text.splitlines()]
    assert ["team/train", "Job", "-", "4", "3", "-", "team/h-1"] in lines
    assert ["team/tune", "Job", "-", "1", "0", "-", "team/h-1"] in lines
    assert ["team/train", "Job", "-", "2", "2", "-", "team/h-2"] in lines
    assert "does not lead" not in text
    code, text = run(kubeconfig, "plans", "-o", "json")
    debts = [debt for plan in json.loads(text) for debt in plan["status"]["debts"]]
    assert [(debt["pods"], debt["stillOwed"]) for debt in debts] == [(4, 3), (1, 0), (2, 2)]


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (status(403, "Forbidden", "cannot get pods/proxy"), "cannot get pods/proxy"),
        ((200, {}), "is it of this version?"),
        ((200, {"leading": True, "debts": [{"plan": "team/h-1"}]}), "is it of this version?"),
    ],
    ids=["forbidden", "empty", "other"],
)
def test_where_nobody_tells_what_is_owed_the_plans_are_shown_all_the_same(
    server: Server, kubeconfig: Path, answer: tuple[int, Any], word: str
) -> None:
    server.answers[f"/apis/{names.API_VERSION}/{names.PREEMPTION_PLURAL}"] = (
        200,
        {"items": [indebted("h-1", train=4)]},
    )
    server.answers[f"{POD_PROXY}/debts"] = answer
    code, text = run(kubeconfig, "plans")
    assert code == 0, text
    assert word in text
    assert ["team/train", "Job", "-", "4", "?", "-", "team/h-1"] in [line.split() for line in text.splitlines()]
    assert "stillOwed" not in run(kubeconfig, "plans", "-o", "json")[1]


def test_a_replica_that_does_not_lead_may_know_of_debts_that_are_paid(server: Server, kubeconfig: Path) -> None:
    items = [indebted("h-1", train=4)]
    server.answers[f"/apis/{names.API_VERSION}/{names.PREEMPTION_PLURAL}"] = (200, {"items": items})
    server.answers[f"{POD_PROXY}/debts"] = (200, {"leading": False, "debts": []})
    assert "A replica that does not lead has answered" in run(kubeconfig, "plans")[1]


def test_the_operator_is_not_asked_where_nothing_was_lost(server: Server, kubeconfig: Path) -> None:
    server.answers[f"/apis/{names.API_VERSION}/{names.PREEMPTION_PLURAL}"] = (200, {"items": [indebted("h-1")]})
    assert run(kubeconfig, "plans")[0] == 0
    assert server.paths == [f"/apis/{names.API_VERSION}/{names.PREEMPTION_PLURAL}"]


def test_queues_show_what_is_used_and_borrowed(server: Server, kubeconfig: Path) -> None:
    queue = {
        "apiVersion": names.API_VERSION,
        "kind": names.QUEUE_KIND,
        "metadata": {"name": "low"},
        "spec": {"deserved": {"cards": "4"}},
        "status": {
            "used": {"cards": "6"},
            "entitled": {"cards": "4"},
            "borrowed": {"cards": "2"},
            "pendingPods": 3,
        },
    }
    server.answers[f"/apis/{names.API_VERSION}/{names.QUEUE_PLURAL}"] = (200, {"items": [queue]})
    code, text = run(kubeconfig, "queues")
    assert code == 0, text
    assert ["low", "0", "-", "4", "-", "6", "4", "2", "-", "3", "-"] in [
        line.split() for line in text.splitlines()
    ]


def test_a_plan_that_came_to_nothing_says_why(server: Server, kubeconfig: Path) -> None:
    ended = {"type": "Ended", "status": "True", "reason": "TakenOver", "message": "m"}
    ended["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    reservation = {"uid": "u", "node": "n1", "card": "GPU-0", "slots": 1, "memoryMiB": 1, "cores": 0}
    spec = {"owner": {"kind": "Pod", "name": "h", "uids": ["u"]}, "reservations": [reservation]}
    plan = {
        "metadata": {"name": "h-1", "namespace": "team"},
        "spec": {**spec, "rule": "WithinQueue", "exact": False},
        "status": {"phase": "Aborted", "conditions": [ended]},
    }
    server.answers[f"/apis/{names.API_VERSION}/{names.PREEMPTION_PLURAL}"] = (200, {"items": [plan]})
    code, text = run(kubeconfig, "plans")
    assert code == 0, text
    assert "Aborted: TakenOver" in text
    assert "not proven" in text
    partial = {**ended, "type": "Partial", "reason": "GangPartial"}
    plan["status"] = {"phase": "Draining", "conditions": [partial]}
    assert "Draining: GangPartial" in run(kubeconfig, "plans")[1]


def test_options_of_all_commands_may_stand_after_the_command() -> None:
    given = ["what-if", "a/b", "--kubeconfig", "k", "-o", "json", "--operator-url=u"]
    assert hoisted(given) == ["--kubeconfig", "k", "--operator-url=u", "what-if", "a/b", "-o", "json"]
    assert hoisted(["plans", "--kubeconfig"]) == ["--kubeconfig", "plans"]


def test_a_manifest_may_come_from_standard_input(server: Server, kubeconfig: Path) -> None:
    server.answers["/api/v1/namespaces/default/pods"] = (201, {**POD, "metadata": {"name": "new"}})
    arguments = ["--kubeconfig", str(kubeconfig), "what-if", "-f", "-"]
    result = CliRunner().invoke(app, arguments, input=json.dumps(POD))
    assert result.exit_code == 0, result.output


def test_the_account_of_the_kubeconfig_is_shown_to_its_api_server_only(
    server: Server, kubeconfig: Path, tmp_path: Path
) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(json.dumps(POD))
    server.answers["/api/v1/namespaces/default/pods"] = (201, {**POD, "metadata": {"name": "new"}})
    server.answers["/what-if"] = (200, ANSWER)
    url = f"http://localhost:{server.port}"
    code, text = run(kubeconfig, "--operator-url", url, "what-if", "-f", str(file))
    assert code == 0, text
    accounts = dict(zip(server.paths, server.accounts, strict=True))
    assert accounts == {"/api/v1/namespaces/default/pods": "Bearer secret", "/what-if": ""}
