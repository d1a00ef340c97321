"""The demo's own judgement: it must see a fault that is there, and end with 1 when a claim does not hold."""

import json
import re
import threading
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from devcluster.__main__ import main
from devcluster.audit import AuditEvent
from devcluster.build import CONTROL_PLANE, Binaries, Module
from devcluster.demo import traffic
from devcluster.demo.books import faults, held_pairs, shown_holders
from devcluster.demo.stage import Stage
from devcluster.progress import Progress
from vgpu import names

WHOLE = {"memoryMiB": 1000, "cores": 100, "whole": True}
HALF = {"memoryMiB": 500, "cores": 50, "whole": False}


def inventory(node: str = "a", *, slots: int = 2) -> dict[str, Any]:
    gpu = {"uuid": f"GPU-{node}", "memoryMiB": 1000, "cores": 100, "slots": slots}
    return {"metadata": {"name": node}, "spec": {"gpus": [gpu]}}


def pod(name: str, card: Mapping[str, Any], *, node: str = "a", uuid: str = "GPU-a") -> dict[str, Any]:
    assignment = {"containers": [{"name": "main", "cards": [{"uuid": uuid, **card}]}]}
    annotations = {names.ASSIGNMENT_ANNOTATION: json.dumps(assignment)}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": {"nodeName": node}}


def event(user: str, verb: str, resource: str, stage: str = "ResponseComplete") -> AuditEvent:
    return AuditEvent(stage, user, "agent/1 (x)", verb, resource, "", "", "", 200, "", "", "")


def test_cards_within_their_limits_are_no_fault() -> None:
    assert faults([inventory()], [pod("one", HALF), pod("two", HALF)]) == []


@pytest.mark.parametrize(
    ("inventories", "pods", "want"),
    [
        ([inventory()], [pod("one", HALF | {"memoryMiB": 501}), pod("two", HALF)], "GPU-a: 1001 MiB of 1000"),
        ([inventory()], [pod("one", HALF | {"cores": 51}), pod("two", HALF)], "GPU-a: 101 percent of 100"),
        ([inventory(slots=1)], [pod("one", HALF), pod("two", HALF)], "GPU-a: 2 holders of 1"),
        (
            [inventory()],
            [pod("one", HALF | {"whole": True}), pod("two", HALF)],
            "GPU-a: a whole-card holder is not alone",
        ),
        ([inventory()], [pod("one", WHOLE, node="b")], "one runs on b and holds GPU-a of a"),
        ([], [pod("one", WHOLE)], "one holds GPU-a, which no inventory lists"),
    ],
    ids=["memory", "cores", "slots", "whole", "other-node", "unknown-card"],
)
def test_each_fault_is_seen(inventories: list[Any], pods: list[Any], want: str) -> None:
    assert faults(inventories, pods) == [want]


def test_holders_shown_and_holders_held_are_compared_by_card_and_pod() -> None:
    shown = inventory() | {"status": {"gpus": [{"uuid": "GPU-a", "holders": [{"name": "one"}]}]}}
    assert shown_holders([shown]) == held_pairs([pod("one", HALF)])
    assert shown_holders([shown]) != held_pairs([pod("two", HALF)])


def test_a_watch_counts_once_and_only_watches_and_the_lease_are_routine() -> None:
    counted = traffic.count(
        [
            event(traffic.AGENT, "watch", "gpunodeinventories", "ResponseStarted"),
            event(traffic.AGENT, "watch", "gpunodeinventories"),
            event(traffic.OPERATOR, "update", "leases"),
            event(traffic.OPERATOR, "patch", "leases"),
            event(traffic.OPERATOR, "list", "pods"),
            event("somebody", "list", "pods"),
        ]
    )
    assert sum(counted.values()) == 5
    odd = {(asked.verb, asked.resource) for asked in counted if asked.ours and not asked.routine}
    assert odd == {("patch", "leases"), ("list", "pods")}


def test_a_claim_that_does_not_hold_is_named_and_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage()
    stage.chapter("Sums", "Adding.")
    stage.claim("two and two are four", "4", True)
    assert stage.finish() == 0
    stage.claim("two and two are five", "4", False)
    assert stage.finish() == 1
    printed = capsys.readouterr().out
    assert "1 of 2 claims held" in printed
    assert "NOT HELD in 1. Sums: two and two are five; seen: 4" in printed


def test_a_story_without_claims_has_shown_nothing() -> None:
    assert Stage().finish() == 1


UUID = "GPU-cd7b70e3-c8c4-5c38-81d3-f509914b88a8"
ROWS = [("system:kube-controller-manager", "kube-controller-manager/v0.0.0", f"{UUID} whole")] * 2


@pytest.mark.parametrize("width", [72, 80, 100, 120])
def test_no_word_of_a_table_is_broken(capsys: pytest.CaptureFixture[str], width: int) -> None:
    Stage(width).table(("USER", "USER AGENT", "CARDS (annotation vgpu.dev/assignment)"), ROWS)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= width
    assert printed.split().count(ROWS[0][0]) == printed.split().count(ROWS[0][1]) == len(ROWS)
    assert printed.split().count(UUID) == len(ROWS)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_command_stays_on_one_line(capsys: pytest.CaptureFixture[str], width: int) -> None:
    command = "kubectl get events --field-selector involvedObject.name=too-big-0,source=vgpu-operator"
    Stage(width).command(command)
    assert f"$ {command}\n" in capsys.readouterr().out


@pytest.mark.parametrize(("steps", "want"), [(1, r"installing: \d+:\d\d, done"), (3, r".*, 3 steps, done")])
def test_one_step_is_not_counted(monkeypatch: pytest.MonkeyPatch, steps: int, want: str) -> None:
    monkeypatch.setattr("devcluster.progress.QUIET_SECONDS", 0)
    stream = StringIO()
    with Progress("installing", stream) as progress:
        for number in range(steps):
            progress.step(f"step {number}")
        while not stream.getvalue():
            threading.Event().wait(0.001)
    assert re.fullmatch(f"devcluster: {want}", stream.getvalue().splitlines()[-1])


@pytest.mark.parametrize(
    ("reason", "want"),
    [(None, "/cache/containerd (built)"), ("a real node needs Linux", "a real node needs Linux")],
    ids=["possible", "impossible"],
)
def test_build_says_what_the_folders_are_or_why_there_is_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, reason: str | None, want: str
) -> None:
    def built(module: Module = CONTROL_PLANE) -> Binaries:
        return Binaries(Path("/cache") / module.name)

    monkeypatch.setattr("devcluster.__main__.ensure_binaries", built)
    monkeypatch.setattr("devcluster.__main__.why_impossible", lambda: reason)
    assert main(["build"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == [
        "control plane programs: /cache/controlplane (built)",
        f"containerd programs: {want}",
    ]
