"""The proof that the judge and the count of Bindings can say no: assignments forged where no operator runs."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from devcluster import Cluster
from tests.cluster.bindings import judge_bindings
from tests.cluster.burst import LIMITS, PODS
from tests.cluster.burst_pods import gpu_container, gpu_pod
from tests.cluster.judge import ASSIGNMENT, VOLCANO, Judge

pytestmark = pytest.mark.cluster

NODE = "forged"
UUIDS = {NODE: {"GPU-a", "GPU-b"}}
ALONE: dict[str, Any] = {"uuid": "GPU-a", "memoryMiB": LIMITS.memory_mib, "cores": 0, "whole": True}
SHARE: dict[str, Any] = {"uuid": "GPU-a", "memoryMiB": 4096, "cores": 40, "whole": False}
ASKED = {"memory": 4096, "cores": 40}


class Forger:
    """Binds pods with assignments that no operator would make, on a cluster without the product."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._made = 0

    def bind(self, *cards: dict[str, Any], asked: dict[str, int] = ASKED, **wrong: str) -> str:
        """Create a pod that asks for `asked` and bind it with these cards; hands back its name."""
        self._made += 1
        name = f"forged-{self._made}"
        made = self.cluster.api.post(PODS, gpu_pod(name, gpu_container(VOLCANO, **asked)))
        containers = [{"name": "main", "cards": list(cards)}]
        facts = {"podUid": made["metadata"]["uid"], "node": NODE, **wrong}
        annotations = {ASSIGNMENT: json.dumps({"v": 1, **facts, "containers": containers})} if cards else {}
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        metadata = {"name": name, "annotations": annotations}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        self.cluster.api.post(f"{PODS}/{name}/binding", binding)
        return name


@pytest.fixture
def forger(clean_cluster: Cluster) -> Forger:
    """A cluster without operator and policies, and one who forges assignments on it."""
    clean_cluster.create_nodes(1, prefix="other-")
    clean_cluster.api.post("/api/v1/nodes", {"metadata": {"name": NODE}})
    return Forger(clean_cluster)


def second_after(first: dict[str, Any], second: dict[str, Any], asked: dict[str, int]) -> "Forgery":
    def forge(forger: Forger) -> None:
        forger.bind(first)
        forger.bind(second, asked=asked)

    return forge


def lost_and_given_again(forger: Forger) -> None:
    """Right at the end, wrong in between: only who looks at every event sees it."""
    forger.bind({**ALONE}, asked={})
    name = forger.bind(SHARE)
    forger.cluster.api.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})


Forgery = Callable[[Forger], object]
FORGERIES: dict[str, tuple[Forgery, str]] = {
    "memory": (
        second_after(SHARE, {**SHARE, "memoryMiB": 40_000, "cores": 0}, {"memory": 40_000}),
        "over its limits",
    ),
    "cores": (second_after(SHARE, {**SHARE, "cores": 70}, {"memory": 4096, "cores": 70}), "over its limits"),
    "beside one that is alone": (second_after(SHARE, {**ALONE, "memoryMiB": 4096}, {"memory": 4096}), "over its"),
    "for a moment": (lost_and_given_again, "over its limits"),
    "a card of another node": (lambda forger: forger.bind({**SHARE, "uuid": "GPU-c"}), "not a card of it"),
    "a card twice": (lambda forger: forger.bind(SHARE, SHARE, asked={**ASKED, "number": 2}), "a card twice"),
    "another pod": (lambda forger: forger.bind(SHARE, podUid="someone"), "names another pod or node"),
    "another node": (lambda forger: forger.bind(SHARE, node="elsewhere"), "names another pod or node"),
    "too little": (lambda forger: forger.bind({**SHARE, "memoryMiB": 4095}), "was given"),
    "too few": (lambda forger: forger.bind(SHARE, asked={**ASKED, "number": 2}), "was given"),
    "nothing": (lambda forger: forger.bind(), "bound without cards"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_the_judge_sees_a_forged_assignment(forger: Forger, forgery: str) -> None:
    forge, want = FORGERIES[forgery]
    with Judge(forger.cluster, LIMITS, UUIDS) as judge:
        forger.bind({**SHARE, "uuid": "GPU-b"})
        assert judge.verdict() == []
        forge(forger)
        assert any(want in violation for violation in judge.verdict())


def test_the_judge_sees_slots_that_are_given_too_often(forger: Forger) -> None:
    small = {"uuid": "GPU-a", "memoryMiB": 100, "cores": 0, "whole": False}
    with Judge(forger.cluster, LIMITS, UUIDS) as judge:
        for _ in range(LIMITS.slots):
            forger.bind(small, asked={"memory": 100})
        assert judge.verdict() == []
        forger.bind(small, asked={"memory": 100})
        assert "over its limits" in judge.verdict()[0]


def test_a_judge_that_broke_is_no_innocence(forger: Forger) -> None:
    with Judge(forger.cluster, LIMITS, UUIDS) as judge:
        forger.bind({"uuid": "GPU-a"})
        with pytest.raises(AssertionError, match="worth nothing"):
            judge.verdict()
        assert "the judge broke" in judge.violations[0]


@pytest.mark.parametrize(
    ("codes", "want"),
    [
        ([201], 0),
        ([201, 409, 409], 0),
        ([201, 201], 1),
        ([409], 1),
        ([], 1),
        ([201, 500], 1),
    ],
)
def test_the_count_of_bindings_takes_exactly_one_that_succeeded(codes: list[int], want: int) -> None:
    counted = {("pod", "uid"): Counter(codes), ("pod", "an earlier uid"): Counter([201])}
    assert len(judge_bindings(counted, {"pod": "uid"})) == want
