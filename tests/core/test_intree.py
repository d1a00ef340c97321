"""The checks of kube-scheduler's own filters that a node fact can answer."""

import pytest

from tests.controller.cluster_facts import node
from vgpu.core.facts import LabelRequirement, Scheduling, Taint, Toleration
from vgpu.core.intree import obstacle

NODE = node("n1", labels=frozenset({("zone", "a"), ("cards", "8")}), pods=110, memory_mib=1024)
TAINTED = node("n1", taints=frozenset({Taint("gpu", "yes", "NoSchedule")}), pods=110)


def required(*terms: tuple[LabelRequirement, ...]) -> Scheduling:
    return Scheduling(required_terms=terms)


def one(key: str, operator: str, *values: str) -> Scheduling:
    return required((LabelRequirement(key, operator, values),))


@pytest.mark.parametrize(
    "pod",
    [
        Scheduling(),
        Scheduling(node_selector=frozenset({("zone", "a")})),
        one("zone", "In", "a", "b"),
        one("zone", "NotIn", "c"),
        one("absent", "NotIn", "c"),
        one("zone", "Exists"),
        one("absent", "DoesNotExist"),
        one("cards", "Gt", "4"),
        one("cards", "Lt", "9"),
        one("metadata.name", "In", "n1"),
        required((LabelRequirement("zone", "In", ("x",)),), (LabelRequirement("cards", "In", ("8",)),)),
        Scheduling(cpu_millicores=64_000, memory_mib=1024),
    ],
    ids=str,
)
def test_the_node_is_open_to_the_pod(pod: Scheduling) -> None:
    assert obstacle(NODE, pod) == ""


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        (Scheduling(node_selector=frozenset({("zone", "b")})), "selector"),
        (Scheduling(node_selector=frozenset({("absent", "")})), "selector"),
        (one("zone", "In", "b"), "affinity"),
        (one("zone", "NotIn", "a"), "affinity"),
        (one("absent", "In", "a"), "affinity"),
        (one("absent", "Exists"), "affinity"),
        (one("zone", "DoesNotExist"), "affinity"),
        (one("cards", "Gt", "8"), "affinity"),
        (one("zone", "Gt", "1"), "affinity"),
        (one("cards", "Lt", "x"), "affinity"),
        (one("zone", "Resembles", "a"), "affinity"),
        (one("metadata.name", "In", "n2"), "affinity"),
        (required(()), "affinity"),
        (
            required((LabelRequirement("zone", "In", ("a",)), LabelRequirement("zone", "In", ("b",)))),
            "affinity",
        ),
        (Scheduling(cpu_millicores=64_001), "CPU"),
        (Scheduling(memory_mib=1025), "memory"),
    ],
    ids=str,
)
def test_the_node_is_closed_to_the_pod(pod: Scheduling, want: str) -> None:
    assert want in obstacle(NODE, pod)


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("gpu", "Exists"), True),
        (Toleration("gpu", "Equal", "yes"), True),
        (Toleration("gpu", "Equal", "yes", "NoSchedule"), True),
        (Toleration("", "Exists"), True),
        (Toleration("gpu", "Equal", "no"), False),
        (Toleration("gpu", "Exists", "", "NoExecute"), False),
        (Toleration("other", "Exists"), False),
        (Toleration("", "Equal", "yes"), False),
    ],
    ids=str,
)
def test_taints_need_a_matching_toleration(toleration: Toleration, tolerated: bool) -> None:
    assert (obstacle(TAINTED, Scheduling(tolerations=(toleration,))) == "") is tolerated


def test_a_preference_not_to_schedule_is_no_obstacle() -> None:
    soft = node("n1", taints=frozenset({Taint("busy", "", "PreferNoSchedule")}), pods=1)
    assert obstacle(soft, Scheduling()) == ""


def test_a_cordoned_node_is_closed_but_to_pods_that_tolerate_it() -> None:
    cordoned = node("n1", unschedulable=True, pods=1)
    tolerant = Scheduling(tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists"),))
    assert obstacle(cordoned, Scheduling()) != ""
    assert obstacle(cordoned, tolerant) == ""
