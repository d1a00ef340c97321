"""Registration with the real kubelet."""

import pytest

from tests.cluster.node.stage import CARDS, SLOTS, NodeStage

pytestmark = pytest.mark.cluster


def test_kubelet_offers_all_slots_of_the_cards_that_the_inventory_names(stage: NodeStage) -> None:
    assert stage.allocatable() == stage.capacity() == SLOTS
    assert len(stage.inventory(stage.node.name)["spec"]["gpus"]) == CARDS
