"""What a pod is charged: shares in thousandths, whole cards as they are, the smallest card while it waits."""

import pytest

from tests.core.building import APP, INIT, make_card, make_request, want
from vgpu.core.charge import Charge
from vgpu.core.facts import CardMode
from vgpu.core.preempt.amounts import claim_of, held_amounts
from vgpu.core.preempt.facts import Amounts
from vgpu.core.request import PodRequest, Selection

SMALL = make_card("small", memory_mib=16_000)
LARGE = make_card("large", memory_mib=80_000, model="NVIDIA H100")
CARDS = (LARGE, SMALL)


@pytest.mark.parametrize(
    ("request_", "wanted"),
    [
        (make_request(want()), Amounts(1000, 16_000, 100)),
        (make_request(want(number=3)), Amounts(3000, 48_000, 300)),
        (make_request(want(percent=25)), Amounts(250, 4_000, 0)),
        (make_request(want(percent=25, cores=60)), Amounts(600, 4_000, 60)),
        (make_request(want(memory_mib=4_000)), Amounts(250, 4_000, 0)),
        (make_request(want(memory_mib=4_001)), Amounts(251, 4_001, 0)),
        (make_request(want(memory_mib=4_000, cores=100)), Amounts(1000, 16_000, 100)),
        (make_request(want(memory_mib=40_000)), Amounts(500, 40_000, 0)),
        (make_request(want(), selection=Selection(use_types=("H100",))), Amounts(1000, 80_000, 100)),
        (make_request(want(), selection=Selection(nouse_uuids=frozenset({"small"}))), Amounts(1000, 80_000, 100)),
    ],
    ids=[
        "a whole card", "three whole cards", "a quarter by percent", "more cores than memory", "a quarter in MiB",
        "rounded up", "all cores are the whole card", "too large for the small card", "another model",
        "a denied card",
    ],
)  # fmt: skip
def test_a_waiting_pod_is_charged_the_smallest_card_that_could_take_it(
    request_: PodRequest, wanted: Amounts
) -> None:
    assert claim_of(request_, CARDS) == wanted


def test_a_pod_that_no_card_could_ever_take_has_no_claim() -> None:
    assert claim_of(make_request(want(memory_mib=80_001)), CARDS) is None
    assert claim_of(make_request(want(), selection=Selection(use_types=("T4",))), CARDS) is None
    assert claim_of(make_request(want(memory_mib=1, cores=60)), [make_card("weak", cores=50)]) is None
    assert claim_of(make_request(want()), [make_card("cut", mode=CardMode.MIG, healthy=False)]) is None


def test_health_does_not_change_a_claim() -> None:
    ill = make_card("small", memory_mib=16_000, healthy=False)
    assert claim_of(make_request(), (LARGE, ill)) == claim_of(make_request(), CARDS)


def test_containers_that_never_live_together_are_charged_the_larger() -> None:
    request = make_request(want(percent=50, kind=INIT, name="load"), want(percent=25, kind=APP))
    assert claim_of(request, CARDS) == Amounts(500, 8_000, 0)


def test_containers_that_live_together_are_charged_both() -> None:
    request = make_request(want(percent=50), want(percent=25, name="side"))
    assert claim_of(request, CARDS) == Amounts(750, 12_000, 0)


def test_a_running_pod_is_charged_the_cards_that_it_holds() -> None:
    charges = {"large": Charge(1, 80_000, 0, exclusive=True), "small": Charge(2, 4_000, 30)}
    by_uuid = {card.uuid: card for card in CARDS}
    assert held_amounts(charges, by_uuid) == Amounts(1000 + 300, 80_000 + 4_000, 100 + 30)


def test_a_holder_alone_with_little_memory_is_charged_the_whole_card() -> None:
    assert held_amounts({"small": Charge(1, 1, 100, exclusive=True)}, {"small": SMALL}) == Amounts(
        1000, 16_000, 100
    )


def test_a_card_that_no_inventory_lists_counts_as_a_whole_one() -> None:
    assert held_amounts({"gone": Charge(1, 500, 10)}, {}) == Amounts(1000, 500, 10)
