"""S81: a bare pod whose owner agreed goes like any other, and is created again when there is room."""

from collections.abc import Iterator

import pytest

from devcluster import Cluster
from tests.cluster.components import install_components, remove_rights
from tests.cluster.preempt.objects import HIGH, LOW, Kind
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
