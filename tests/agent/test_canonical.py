"""From a reading to the inventory: golden files per kind of node, order, memory, exclusion, lost cards."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent.samples import make_card, make_reading, make_spec
from vgpu.agent.canonical import same_content, spec_of, unreadable, usable_memory_mib
from vgpu.agent.config import ExcludedCards, NodeSettings
from vgpu.agent.health import HealthBook
from vgpu.agent.source import CardReading, LostCard
from vgpu.api.inventory import Health, InventorySpec
from vgpu.core.facts import CardMode, Plugin
from vgpu.errors import SourceError

GOLDEN = Path(__file__).parent / "golden"
LINKED = (make_card(0, links=frozenset({"GPU-1"})), make_card(1, links=frozenset({"GPU-0"})))
FULL = make_spec(make_reading(count=8))
CASES: dict[str, InventorySpec] = {
    "two_linked_cards": make_spec(make_reading(*LINKED)),
    "settings": make_spec(
        settings=NodeSettings(slots=4, memory_reserve_mib=1000, memory_factor=1024, plugin=Plugin.HAMI)
    ),
    "mig": make_spec(make_reading(make_card(0, mode=CardMode.MIG), make_card(1))),
    "one_lost_of_eight": make_spec(
        make_reading(*(make_card(index) for index in range(8) if index != 3), lost=(LostCard(3, "GPU is lost"),)),
        previous=FULL,
    ),
    "unreadable": unreadable("NVML cannot be used: Driver Not Loaded", make_spec()) or make_spec(),
}


@pytest.mark.parametrize("name", CASES)
def test_the_inventory_is_as_reviewed(name: str) -> None:
    assert CASES[name].canonical() == json.loads((GOLDEN / f"{name}.json").read_text())


def test_the_order_of_cards_and_peers_changes_nothing() -> None:
    everyone = frozenset(f"GPU-{index}" for index in range(8))
    cards = [make_card(index, links=everyone - {f"GPU-{index}"}) for index in range(8)]
    want = make_spec(make_reading(*cards))
    for seed in range(5):
        shuffled = random.Random(seed).sample(cards, len(cards))
        assert make_spec(make_reading(*shuffled)) == want


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"memory_mib": 81919}, id="memory"),
        pytest.param({"problem": "row remapping failed"}, id="health"),
        pytest.param({"uuid": "GPU-x"}, id="uuid"),
        pytest.param({"minor": 7}, id="minor"),
        pytest.param({"numa_node": None}, id="numa"),
        pytest.param({"links": frozenset({"GPU-1"})}, id="links"),
        pytest.param({"mode": CardMode.MIG}, id="mode"),
        pytest.param({"model": "other"}, id="model"),
    ],
)
def test_a_change_of_any_one_field_is_a_difference(change: dict[str, object]) -> None:
    changed = make_reading(make_card(0, **change), make_card(1))
    assert not same_content(make_spec(), make_spec(changed))


@pytest.mark.parametrize(
    ("settings", "total_mib", "want"),
    [
        (NodeSettings(), 81920, 81920),
        (NodeSettings(memory_reserve_mib=512), 81920, 81408),
        (NodeSettings(memory_scale_percent=150), 1000, 1500),
        (NodeSettings(memory_scale_percent=150, memory_reserve_mib=100), 1000, 1400),
        (NodeSettings(memory_factor=1024), 81559, 80896),
        (NodeSettings(preconfigured_memory_mib=16384), None, 16384),
        (NodeSettings(preconfigured_memory_mib=16384), 81920, 81920),
        (NodeSettings(), None, 0),
        (NodeSettings(memory_reserve_mib=90000), 81920, 0),
    ],
)
def test_usable_memory(settings: NodeSettings, total_mib: int | None, want: int) -> None:
    assert usable_memory_mib(make_card(memory_mib=total_mib), settings) == want


def test_a_card_of_unknown_size_is_listed_and_takes_nothing() -> None:
    (gpu,) = make_spec(make_reading(make_card(memory_mib=None))).gpus
    assert (gpu.health, gpu.memory_mib) == (Health.UNHEALTHY, 1)
    assert "preconfiguredMemoryMiB" in gpu.health_reason


def test_excluded_cards_are_not_listed_by_uuid_or_index() -> None:
    settings = NodeSettings(exclude_cards=ExcludedCards(uuids=frozenset({"GPU-1"}), indexes=frozenset({3})))
    spec = make_spec(make_reading(count=5), settings)
    assert [gpu.uuid for gpu in spec.gpus] == ["GPU-0", "GPU-2", "GPU-4"]


def test_mode_mig_of_the_settings_lists_all_cards_as_mig() -> None:
    assert {gpu.mode for gpu in make_spec(settings=NodeSettings(mode=CardMode.MIG)).gpus} == {CardMode.MIG}


def lost(index: int, uuid: str = "") -> CardReading:
    """Eight cards of which one is lost."""
    cards = [make_card(position) for position in range(8) if position != index]
    return make_reading(*cards, lost=(LostCard(index, "GPU is lost", uuid),))


@pytest.mark.parametrize("uuid", ["", "GPU-3"])
def test_r38_a_lost_card_stays_listed_unhealthy_and_the_other_seven_usable(uuid: str) -> None:
    spec = make_spec(lost(3, uuid), previous=FULL)
    want = [gpu.uuid for gpu in spec.gpus if gpu.uuid != "GPU-3"]
    assert [gpu.uuid for gpu in spec.gpus if gpu.health is Health.HEALTHY] == want
    (bad,) = (gpu for gpu in spec.gpus if gpu.health is Health.UNHEALTHY)
    assert (bad.uuid, bad.memory_mib, bad.health_reason) == ("GPU-3", 81920, "lost: GPU is lost")


def test_r38_a_card_that_the_driver_no_longer_counts_is_known_by_its_address_though_others_moved_up() -> None:
    """The seven others answer at the indexes 0 to 6: an index would name the wrong card."""
    others = [card for card in (make_card(position) for position in range(8)) if card.index != 3]
    moved = [replace(card, index=index) for index, card in enumerate(others)]
    gone = LostCard(None, "the driver does not count it", pci_bus_id="0000:13:00.0")
    spec = make_spec(make_reading(*moved, lost=(gone,)), previous=FULL)
    bad = [gpu for gpu in spec.gpus if gpu.health is Health.UNHEALTHY]
    assert [(gpu.uuid, gpu.health_reason) for gpu in bad] == [("GPU-3", "lost: the driver does not count it")]
    assert len(spec.gpus) == 8


def test_a_lost_card_that_nobody_knows_is_not_invented() -> None:
    assert len(make_spec(lost(3)).gpus) == 7


def test_r42_a_new_uuid_at_the_same_index_replaces_the_old_card() -> None:
    replaced = make_reading(make_card(0, uuid="GPU-new"), make_card(1))
    spec = make_spec(replaced, previous=make_spec())
    assert [gpu.uuid for gpu in spec.gpus] == ["GPU-new", "GPU-1"]
    assert {gpu.health for gpu in spec.gpus} == {Health.HEALTHY}


def test_a_living_card_is_never_taken_for_a_lost_one() -> None:
    """An index is no identity: the reading says index 1 is lost, and GPU-1 answers at another index."""
    reading = make_reading(make_card(1, index=5), lost=(LostCard(1, "GPU is lost"),))
    spec = make_spec(reading, previous=make_spec())
    assert [(gpu.uuid, gpu.health) for gpu in spec.gpus] == [("GPU-1", Health.HEALTHY)]


def test_a_lost_card_gives_way_when_its_index_was_given_to_another() -> None:
    reading = make_reading(make_card(0), make_card(7, index=1), lost=(LostCard(9, "GPU is lost", "GPU-1"),))
    spec = make_spec(reading, previous=make_spec())
    assert len({gpu.index for gpu in spec.gpus}) == 3
    assert {gpu.uuid for gpu in spec.gpus} == {"GPU-0", "GPU-1", "GPU-7"}


def test_r35_a_node_that_never_had_cards_gets_no_inventory() -> None:
    assert spec_of(CardReading(), NodeSettings(), HealthBook(), None) is None


def test_r35_cards_that_are_really_gone_leave_an_empty_list() -> None:
    spec = spec_of(CardReading(), NodeSettings(), HealthBook(), make_spec())
    assert spec is not None
    assert spec.gpus == ()


def test_r35_could_not_read_keeps_the_last_good_list() -> None:
    spec = unreadable("driver not loaded", make_spec())
    assert spec is not None
    assert (spec.gpus, spec.read_error) == (make_spec().gpus, "driver not loaded")
    assert unreadable("driver not loaded", None) is None
    assert make_spec(previous=spec).read_error == ""


def test_what_keeps_shares_from_being_held_is_in_the_inventory_beside_the_cards() -> None:
    spec = spec_of(make_reading(), NodeSettings(), HealthBook(), None, "libvgpu.so is not there")
    assert spec is not None
    assert (len(spec.gpus), spec.isolation_error) == (2, "libvgpu.so is not there")
    assert make_spec(previous=spec).isolation_error == ""


def test_a_long_error_is_cut_to_what_the_object_may_hold() -> None:
    spec = unreadable("x" * 5000, make_spec())
    assert spec is not None
    assert InventorySpec.model_validate(spec.dump()).read_error == "x" * 1024


def test_cards_that_contradict_each_other_are_a_failed_reading() -> None:
    twice = make_reading(make_card(0), make_card(1, uuid="GPU-0"))
    with pytest.raises(SourceError, match="same uuid"):
        spec_of(twice, NodeSettings(), HealthBook(), None)


def test_equal_readings_make_equal_content_and_different_boots_do_not() -> None:
    assert same_content(make_spec(), make_spec())
    assert not same_content(make_spec(), make_spec(replace(make_reading(), boot_id="boot-2")))
