"""S28: nobody is evicted on a node that kube-scheduler would refuse all the same."""

import pytest

from tests.core.building import make_node
from vgpu.core.facts import LabelRequirement, Scheduling, Taint, Toleration
from vgpu.core.preempt.feasible import NodeUse, obstacle_after

NODE = make_node(cpu_millicores=8_000, memory_mib=16_000, pods=10, labels=frozenset({("zone", "a")}))
FULL = NodeUse(8_000, 16_000, 10)
VICTIM = Scheduling(cpu_millicores=2_000, memory_mib=4_000)


def test_s28_what_the_victims_release_counts() -> None:
    assert obstacle_after(NODE, FULL, VICTIM, released=[VICTIM]) == ""


@pytest.mark.parametrize(
    ("pod", "word"),
    [
        (Scheduling(cpu_millicores=2_001), "CPU"),
        (Scheduling(memory_mib=4_001), "memory"),
        (Scheduling(node_selector=frozenset({("zone", "b")})), "selector"),
        (Scheduling(required_terms=((LabelRequirement("zone", "NotIn", ("a",)),),)), "affinity"),
    ],
    ids=["cpu", "memory", "selector", "affinity"],
)
def test_s28_what_is_short_even_without_the_victims_is_named(pod: Scheduling, word: str) -> None:
    assert word in obstacle_after(NODE, FULL, pod, released=[VICTIM])


def test_s28_a_taint_is_minded_unless_it_is_tolerated() -> None:
    tainted = make_node(
        cpu_millicores=8_000, memory_mib=16_000, pods=10, taints=frozenset({Taint("k", "", "NoSchedule")})
    )
    assert "taint" in obstacle_after(tainted, NodeUse(), Scheduling())
    assert obstacle_after(tainted, NodeUse(), Scheduling(tolerations=(Toleration("k", "Exists"),))) == ""


def test_s28_the_number_of_pods_counts() -> None:
    assert "pod" in obstacle_after(NODE, NodeUse(pods=10), Scheduling())
    assert obstacle_after(NODE, NodeUse(pods=10), Scheduling(), released=[Scheduling()]) == ""


def test_an_amount_that_is_not_asked_for_is_never_short() -> None:
    assert obstacle_after(NODE, NodeUse(9_000, 20_000, 1), Scheduling()) == ""


def test_others_of_its_gang_on_the_node_count() -> None:
    half = Scheduling(cpu_millicores=5_000)
    assert obstacle_after(NODE, NodeUse(), half) == ""
    assert "CPU" in obstacle_after(NODE, NodeUse(), half, beside=[half])
