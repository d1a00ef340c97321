"""Which ids kubelet is told of, and which it is asked to take first."""

import pytest

from vgpu.agent.identity.port import CardNow, CardsNow
from vgpu.agent.kubelet.server import listed
from vgpu.agent.kubelet.slots import MAX_SLOTS, Slots, preferred, slots_of, without_health
from vgpu.core.facts import CardMode

FOUR_MIB = 4 * 1024 * 1024


def card(number: int, **changes: object) -> CardNow:
    fields = {"uuid": f"GPU-{number}", "index": number, "slots": 4, "healthy": True, "memory_mib": 81920} | changes
    return CardNow(**fields)  # type: ignore[arg-type]  # the table above has the right types


@pytest.mark.parametrize(
    ("cards", "want"),
    [
        pytest.param((), Slots(0, 0), id="no card"),
        pytest.param((card(0), card(1)), Slots(8, 8), id="all well"),
        pytest.param((card(0, healthy=False), card(1)), Slots(8, 4), id="one unhealthy"),
        pytest.param((card(0, mode=CardMode.MIG), card(1)), Slots(4, 4), id="one cut by others"),
        pytest.param((card(0, slots=MAX_SLOTS), card(1)), Slots(MAX_SLOTS, MAX_SLOTS, 4), id="above the cap"),
        pytest.param(
            (card(0, slots=MAX_SLOTS, healthy=False), card(1)),
            Slots(MAX_SLOTS, 4, 4),
            id="above it, one unhealthy",
        ),
    ],
)
def test_slots_are_those_of_shared_cards(cards: tuple[CardNow, ...], want: Slots) -> None:
    assert slots_of(CardsNow(cards)) == want


def test_ids_stay_when_health_goes() -> None:
    slots = Slots(3, 3)
    assert without_health(slots).ids == slots.ids == ["slot-0", "slot-1", "slot-2"]
    assert without_health(slots).healthy == 0


def test_the_last_ids_are_the_unhealthy_ones() -> None:
    assert [(d.ID, d.health) for d in listed(Slots(3, 1)).devices] == [
        ("slot-0", "Healthy"),
        ("slot-1", "Unhealthy"),
        ("slot-2", "Unhealthy"),
    ]


def test_r36_the_longest_list_fits_eight_times_into_what_kubelet_takes() -> None:
    assert listed(Slots(MAX_SLOTS, 0)).ByteSize() * 8 < FOUR_MIB


@pytest.mark.parametrize(
    ("available", "must", "size", "want"),
    [
        pytest.param(["slot-10", "slot-9", "slot-2"], [], 2, ["slot-2", "slot-9"], id="lowest by number"),
        pytest.param(["slot-0", "slot-1", "slot-7"], ["slot-7"], 2, ["slot-7", "slot-0"], id="must be in it"),
        pytest.param(["slot-1"], ["slot-1"], 1, ["slot-1"], id="nothing but that"),
        pytest.param(["odd", "slot-3"], [], 1, ["slot-3"], id="an id that is not ours comes last"),
        pytest.param(["slot-1"], [], 3, ["slot-1"], id="fewer than asked for"),
    ],
)
def test_preferred_ids(available: list[str], must: list[str], size: int, want: list[str]) -> None:
    assert preferred(available, must, size) == want


def test_r08_slots_that_were_given_out_just_now_come_last() -> None:
    assert preferred(["slot-0", "slot-1", "slot-2"], [], 1, {"slot-0", "slot-1"}) == ["slot-2"]
    assert preferred(["slot-0", "slot-1"], [], 1, {"slot-0", "slot-1"}) == ["slot-0"]
