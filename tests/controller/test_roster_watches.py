"""Queues, namespaces, budgets, groups and classes reach the roster; what cannot be read disturbs nobody."""

import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.controller.cluster_facts import ledger_of, pending
from vgpu.controller import roster_watches as watches
from vgpu.controller.optional_watch import OptionalWatch
from vgpu.controller.translate.budget import decode_budget
from vgpu.controller.translate.group import decode_kubernetes_group, decode_volcano_group
from vgpu.controller.translate.namespace import (
    ClassFact,
    NamespaceFact,
    decode_class,
    decode_definition,
    decode_namespace,
)
from vgpu.controller.translate.queue import SeenQueue, decode_queue
from vgpu.core.preempt.budget_book import BudgetFact, LabelRule
from vgpu.core.preempt.facts import QueueFact
from vgpu.core.preempt.roster import Roster
from vgpu.core.terms import GroupFact, GroupName, GroupSource
from vgpu.errors import MalformedObject
from vgpu.kube.objects import Key

DECODERS = (
    decode_budget,
    decode_class,
    decode_definition,
    decode_kubernetes_group,
    decode_namespace,
    decode_queue,
    decode_volcano_group,
)


def encode(spec: Any = None, **fields: Any) -> bytes:
    metadata = {"name": "x", "namespace": "team", "uid": "u", "resourceVersion": "5"}
    return json.dumps({"metadata": metadata, **({} if spec is None else {"spec": spec}), **fields}).encode()


class Publisher:
    def __init__(self) -> None:
        self.seen: list[SeenQueue] = []
        self.dropped: list[str] = []

    def saw(self, queue: SeenQueue) -> None:
        self.seen.append(queue)

    def gone(self, name: str) -> None:
        self.dropped.append(name)


class Told:
    count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.mark.parametrize("decode", DECODERS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("raw", [b"{", b"[]", b'{"metadata": {}}', b'{"metadata": 1}'])
def test_what_is_no_such_object_is_refused(decode: Callable[[bytes], Any], raw: bytes) -> None:
    if decode is decode_queue and raw == b'{"metadata": {}}':
        return  # the store asks for the uid itself
    with pytest.raises(MalformedObject):
        decode(raw)


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"minMember": 3, "priorityClassName": "high", "queue": "q"}, (3, "high")),
        ({"minMember": 0}, (None, "")),
        ({}, (None, "")),
        (None, (None, "")),
    ],
)
def test_a_volcano_group(spec: Any, want: tuple[int | None, str]) -> None:
    name = GroupName(GroupSource.VOLCANO, "team", "x")
    assert decode_volcano_group(encode(spec)).fact == GroupFact(name, want[0], priority_class=want[1])


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"schedulingPolicy": {"gang": {"minCount": 4}}, "priority": 7}, (4, False, 7)),
        ({"schedulingPolicy": {"basic": {}}}, (None, False, None)),
        ({"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": "PodGroup"}, (2, True, None)),
        ({"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": "Pod"}, (2, False, None)),
        ({"disruptionMode": {"all": {}}}, (None, True, None)),
        ({"disruptionMode": {"single": {}}}, (None, False, None)),
        (None, (None, False, None)),
    ],
)
def test_a_kubernetes_group_of_any_version(spec: Any, want: tuple[int | None, bool, int | None]) -> None:
    name = GroupName(GroupSource.KUBERNETES, "team", "x")
    assert decode_kubernetes_group(encode(spec)).fact == GroupFact(name, *want)


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        ({}, ()),
        (None, None),
        (
            {
                "matchLabels": {"app": "a"},
                "matchExpressions": [{"key": "tier", "operator": "In", "values": ["b", "c"]}],
            },
            (
                LabelRule("app", "In", frozenset({"a"})),
                LabelRule("tier", "In", frozenset({"b", "c"})),
            ),
        ),
    ],
)
def test_a_budget(selector: Any, want: tuple[LabelRule, ...] | None) -> None:
    spec = {"minAvailable": 1, **({} if selector is None else {"selector": selector})}
    status = {"disruptionsAllowed": 2, "disruptedPods": {"p": "2026-01-31T12:00:00Z"}}
    want_fact = BudgetFact("team", "x", 2, want, frozenset({"p"}))
    assert decode_budget(encode(spec, status=status)).fact == want_fact
    assert decode_budget(encode(spec)).fact.allowed == 0, "its controller has said nothing yet"


def test_a_queue_whose_spec_cannot_be_read_is_a_queue_with_a_fault() -> None:
    seen = decode_queue(encode({"priority": "high"}, status={"pendingPods": 2})).fact
    assert (seen.fact, seen.status.pending_pods) == (None, 2)
    assert seen.fault.startswith("spec.priority: ")
    assert decode_queue(encode({}, status="nonsense")).fact.fact == QueueFact("x")


def test_a_queue_keeps_its_last_good_fact_and_is_told_of_its_fault() -> None:
    roster, publisher, told = Roster(ledger_of()), Publisher(), Told()
    sink = watches.QueueSink(roster, publisher, told)
    for spec in ({"priority": 3}, {"priority": 3}, {"priority": "high"}):
        sink.put(decode_queue(encode(spec)).fact)
    assert roster.queues == {"x": QueueFact("x", priority=3)}
    assert told.count == 1, "only the first one changed anything"
    assert [bool(seen.fault) for seen in publisher.seen] == [False, False, True]
    sink.drop(Key("", "x", "u"))
    assert (dict(roster.queues), publisher.dropped, told.count) == ({}, ["x"], 2)


def test_a_namespaces_label_names_the_queue_of_its_pods() -> None:
    ledger, told = ledger_of(), Told()
    roster = Roster(ledger)
    sink = watches.NamespaceSink(roster, told)
    raw = json.dumps({"metadata": {"name": "team", "uid": "u", "labels": {"policy.vgpu.dev/queue": "q"}}}).encode()
    assert decode_namespace(raw).fact == NamespaceFact("team", "q")
    sink.put(decode_namespace(raw).fact)
    sink.put(NamespaceFact("other"))
    assert (roster.queue_of(pending("p")), told.count) == ("q", 1)
    sink.drop(Key("", "team", "u"))
    assert roster.queue_of(pending("p")) == "default"


def test_groups_that_are_not_served_any_more_are_forgotten() -> None:
    roster, told = Roster(ledger_of()), Told()
    sink = watches.GroupSink(GroupSource.VOLCANO, roster, told)
    fact = decode_volcano_group(encode({"minMember": 2})).fact
    sink.put(fact)
    sink.put(fact)
    assert (roster.group(fact.name.key), told.count) == (fact, 1)
    sink.forget()
    assert roster.group(fact.name.key) is None
    sink.put(fact)
    sink.drop(Key("team", "x", "u"))
    assert roster.group(fact.name.key) is None


def test_classes_budgets_and_definitions_reach_who_needs_them() -> None:
    roster, told = Roster(ledger_of()), Told()
    classes, budgets = watches.ClassSink(roster), watches.BudgetSink(roster, told)
    classes.put(ClassFact("high", 5))
    classes.drop(Key("", "high", "u"))
    budget = BudgetFact("team", "b", 1, ())
    budgets.put(budget)
    budgets.put(budget)
    budgets.drop(Key("team", "b", "u"))
    assert told.count == 2


def test_a_definition_counts_while_it_is_established_and_not_going() -> None:
    name, heard = "podgroups.scheduling.volcano.sh", list[bool]()

    class Watch:
        def define(self, *, defined: bool) -> None:
            heard.append(defined)

    sink = watches.DefinitionSink(cast(OptionalWatch, Watch()))
    established = {"conditions": [{"type": "Established", "status": "True"}]}
    going = {"name": name, "uid": "u", "deletionTimestamp": "2026-01-31T12:00:00Z"}
    for fields in ({}, {"status": established}, {"status": established, "metadata": going}):
        sink.put(decode_definition(encode(**fields)).fact)
    sink.drop(Key("", name, "u"))
    assert heard == [False, True, False, False]
