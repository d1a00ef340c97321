"""S81: a bare pod whose owner agreed goes like any other, and is created again when there is room."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from devcluster import ApiRefused, Cluster
from tests.cluster.components import install_components, remove_rights
from tests.cluster.preempt.objects import HIGH, LOW, MIDDLE, Kind, bare_pod
from tests.cluster.preempt.stage import Case, World, preempt_world
from vgpu import names

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def world(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The product with the switch on, and with the rights that the component gives."""
    try:
        with preempt_world(cluster, {"VGPU_RECREATE_BARE_PODS": "true"}) as running:
            install_components(cluster, tmp_path_factory.mktemp("components"), "bare-pods")
            yield running
    finally:
        remove_rights(cluster, "bare-pods")


def test_s81_a_bare_pod_whose_owner_agreed_goes_and_is_created_again(case: Case) -> None:
    case.node(1)
    low, high = case.queue("low"), case.queue("high", deserved={"cards": "1"})
    agreed = Kind(queue=low, priority=LOW, annotations={names.POLICY_EVICT_BARE: "true"}, labels={"mine": "kept"})
    first = case.pod("bare", agreed)
    case.wait_bound("bare")
    case.pod("h", Kind(queue=high, priority=HIGH))
    case.wait_bound("h")
    assert case.evictions() == ["bare"]
    case.delete("h")
    case.wait_running("bare", 1)
    again = case.pods()["bare"]
    assert again["metadata"]["uid"] != first
    assert again["metadata"]["labels"]["mine"] == "kept"
    assert again["spec"]["containers"][0]["resources"]["limits"] == agreed.ask.container()["resources"]["limits"]


def test_s81_a_restart_does_not_lose_who_is_to_be_created_again(case: Case) -> None:
    case.node(1)
    low, high = case.queue("low"), case.queue("high", deserved={"cards": "1"})
    case.pod("bare", Kind(queue=low, priority=LOW, annotations={names.POLICY_EVICT_BARE: "true"}))
    case.wait_bound("bare")
    case.pod("h", Kind(queue=high, priority=HIGH))
    case.wait_bound("h")
    case.world.crash()
    case.delete("h")
    case.world.revive()
    case.wait_running("bare", 1)


@pytest.mark.parametrize("deserved", ["0", "1"], ids=["nobody entitled", "one entitled"])
@pytest.mark.parametrize("priority", [MIDDLE, LOW], ids=["higher class", "oldest debt"])
def test_s80_s81_what_is_freed_goes_to_the_bare_pod_and_not_to_those_that_wait_behind_it(
    case: Case, priority: int, deserved: str
) -> None:
    case.node(1)
    queue = case.queue("ours", deserved={"cards": deserved})
    agreed = {names.POLICY_EVICT_BARE: "true"}
    case.pod("bare", Kind(queue=queue, priority=priority, annotations=agreed))
    case.wait_bound("bare")
    # The API server tells ages in whole seconds, and among equals the queue entitles the older one.
    born = case.pods()["bare"]["metadata"]["creationTimestamp"]
    case.wait(lambda: f"{datetime.now(UTC):%FT%TZ}" > born, "the others to be younger")
    case.start("low", Kind(queue=queue, priority=LOW), 4)
    case.wait(lambda: len(case.waiting("low")) == 4, "four to wait")
    for name in sorted(case.waiting("low")):
        case.wait_refused(name, "")
    case.pod("want", Kind(queue=queue, priority=HIGH))
    case.wait_bound("want")
    assert case.evictions() == ["bare"]
    case.delete("want")
    case.wait(lambda: bool(case.running("bare") or case.running("low")), "somebody to get the card")
    assert [*case.running()] == ["bare"], case.picture()


def test_s81_after_a_restart_it_still_comes_before_those_that_wait_behind_it(case: Case) -> None:
    case.node(1)
    queue = case.queue("ours", deserved={"cards": "1"})
    agreed = {names.POLICY_EVICT_BARE: "true"}
    case.pod("bare", Kind(queue=queue, priority=MIDDLE, annotations=agreed))
    case.wait_bound("bare")
    case.start("low", Kind(queue=queue, priority=LOW), 4)
    case.pod("want", Kind(queue=queue, priority=HIGH))
    case.wait_bound("want")
    case.world.crash()
    case.delete("want")
    case.world.revive()
    case.wait(lambda: bool(case.running("bare") or case.running("low")), "somebody to get the card")
    assert [*case.running()] == ["bare"], case.picture()


def test_s81_a_bare_pod_that_its_namespace_takes_no_more_keeps_nobody_waiting(case: Case) -> None:
    case.node(1)
    queue = case.queue("ours")
    agreed = {names.POLICY_EVICT_BARE: "true"}
    case.pod("bare", Kind(queue=queue, priority=MIDDLE, annotations=agreed))
    case.wait_bound("bare")
    case.pod("low", Kind(queue=queue, priority=LOW))
    case.pod("want", Kind(queue=queue, priority=HIGH))
    case.wait_bound("want")
    quota = {"metadata": {"name": "full"}, "spec": {"hard": {"pods": "0"}}}
    case.cluster.api.post(f"/api/v1/namespaces/{case.namespace}/resourcequotas", quota)

    def refused() -> bool:
        try:
            case.cluster.api.post(f"{case.pods_path}?dryRun=All", bare_pod("one-more", Kind(queue=queue)))
        except ApiRefused:
            return True
        return False

    case.wait(refused, "the quota to count")
    case.delete("want")
    case.wait_bound("low")
    assert "bare" not in case.pods()
