"""500 mixed pods created at once on 20 nodes, and more pods than there are cards."""

from collections.abc import Iterator

import pytest

from devcluster import Cluster
from devcluster.waiting import wait_until
from tests.cluster.burst import LOOK_SECONDS, World, burst_world
from tests.cluster.burst_pods import mixed_pods, whole_pods

pytestmark = pytest.mark.cluster

PODS_AT_ONCE = 500
CARDS_IN_ALL = 160


@pytest.fixture(scope="module")
def world(cluster: Cluster) -> Iterator[World]:
    """20 nodes and the running product."""
    with burst_world(cluster) as running:
        yield running


def test_500_mixed_pods_created_at_once_each_get_cards_of_their_own(world: World) -> None:
    with world.judged() as case:
        case.settle(case.create(mixed_pods(PODS_AT_ONCE)))
        assert len(case.bound()) == PODS_AT_ONCE


def test_pods_that_do_not_fit_wait_and_follow_those_that_go(world: World) -> None:
    """40 pods more than there are cards: exactly as many as fit are bound, and each that goes lets one in."""
    with world.judged() as case:
        uids = case.create(whole_pods(CARDS_IN_ALL + 40, "whole"))
        wait_until(lambda: len(case.bound()) == CARDS_IN_ALL, "every card to be taken", 120, LOOK_SECONDS)
        case.check_world()
        gone = sorted(case.bound())[:40]
        case.delete(gone)
        case.settle(uids)
        assert len(case.bound()) == CARDS_IN_ALL
