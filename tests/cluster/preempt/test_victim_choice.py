"""S14-S31: which pods go, card by card: the least that makes room, and nobody where it would not help."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.cluster.preempt.objects import HIGH, MIDDLE, Ask, Kind, inventory
from tests.cluster.preempt.stage import Case
from vgpu import names

pytestmark = pytest.mark.cluster

HALF = Ask(percent=50, cores=50)
TINY = Ask(memory=1)
SAFE = 1000
"""A class above every preemptor's: its pods never go."""


def team(case: Case, **spec: object) -> Kind:
    """Work of one queue, in which classes decide."""
    return Kind(queue=case.queue("team", **spec))


def on(case: Case, index: int, kind: Kind) -> Kind:
    """The same on one card only."""
    return kind.but(annotations={**kind.annotations, names.VOLCANO_USE_UUID: case.card(index)})


def preempt(case: Case, kind: Kind, name: str = "h") -> list[str]:
    """Create the preemptor and wait until it is bound; hands back who was evicted."""
    case.pod(name, kind)
    case.wait_bound(name)
    return case.evictions()


def test_s14_one_pod_goes_rather_than_two(case: Case) -> None:
    case.node(2)
    low = team(case)
    case.run("halves", on(case, 0, low.but(ask=HALF)), 2)
    single = case.run("single", on(case, 1, low.but(ask=Ask(percent=100))))
    assert preempt(case, low.but(priority=HIGH)) == single
    assert case.cards("h") == [case.card(1)]


def test_s15_three_of_a_low_class_go_rather_than_one_of_a_higher(case: Case) -> None:
    case.node(2)
    low = team(case)
    case.run("middle", on(case, 0, low.but(priority=MIDDLE)))
    three = case.run("low", on(case, 1, low.but(ask=Ask(percent=30, cores=30))), 3)
    assert sorted(preempt(case, low.but(priority=HIGH))) == three


def test_s17_room_on_two_cards_does_not_add_up(case: Case) -> None:
    case.node(2)
    low = team(case).but(ask=HALF)
    for index in range(2):
        case.run(f"low{index}", on(case, index, low))
    [victim] = preempt(case, low.but(ask=Ask(percent=80, cores=80), priority=HIGH))
    [stays] = case.running("low0") or case.running("low1")
    assert victim != stays
    assert case.cards("h") != case.cards(stays)


def test_s18_nobody_goes_while_another_node_has_room(case: Case) -> None:
    full, _ = case.node(1), case.node(1)
    low = team(case)
    case.run("low", low.but(node=full))
    assert preempt(case, low.but(priority=HIGH)) == []
    assert case.plans() == []


def test_s19_only_the_card_that_is_lacking_is_cleared(case: Case) -> None:
    case.node()
    low = team(case)
    [victim] = case.run("low", on(case, 2, low))
    assert preempt(case, low.but(ask=Ask(number=4), priority=HIGH)) == [victim]
    assert len(set(case.cards("h"))) == 4


def test_s19_the_cheapest_of_several_cards_is_cleared(case: Case) -> None:
    case.node(2)
    low = team(case)
    case.run("middle", on(case, 0, low.but(priority=MIDDLE)))
    [cheap] = case.run("low", on(case, 1, low))
    assert preempt(case, low.but(priority=HIGH)) == [cheap]


def test_s21_a_card_whose_cores_are_all_booked_takes_no_pod_without_cores(case: Case) -> None:
    case.node(1)
    low = team(case)
    [full] = case.run("full", low.but(ask=Ask(memory=1000, cores=60)))
    [rest] = case.run("rest", low.but(ask=Ask(memory=1000, cores=40), priority=SAFE))
    assert preempt(case, low.but(ask=Ask(memory=1000), priority=HIGH)) == [full]
    assert rest in case.running()


def test_s22_a_slot_is_freed_where_only_slots_are_short(case: Case) -> None:
    case.node(1)
    low = team(case)
    case.run("tiny", low.but(ask=TINY), 10)
    assert len(preempt(case, low.but(ask=TINY, priority=HIGH))) == 1


@pytest.mark.parametrize("key", [names.VOLCANO_USE_UUID, names.VOLCANO_NOUSE_UUID], ids=["allows", "forbids"])
def test_s24_only_cards_that_the_pod_allows_are_cleared(case: Case, key: str) -> None:
    case.node(2)
    low = team(case)
    case.run("low", on(case, 0, low))
    [right] = case.run("middle", on(case, 1, low.but(priority=MIDDLE)))
    uuid = case.card(1 if key == names.VOLCANO_USE_UUID else 0)
    assert preempt(case, low.but(priority=HIGH, annotations={key: uuid})) == [right]
    assert case.cards("h") == [case.card(1)]


def test_s24_a_pod_that_allows_no_card_is_told_which_rule_it_is(case: Case) -> None:
    case.node(1)
    low = team(case)
    case.run("low", low)
    case.pod("h", low.but(priority=HIGH, annotations={names.VOLCANO_USE_UUID: "GPU-elsewhere"}))
    case.wait_told("h", "CardSelection")
    case.wait_refused("h", "NotActive")
    assert case.evictions() == []


def test_s25_nobody_goes_for_room_on_an_unhealthy_card(case: Case) -> None:
    node = case.node(2)
    low = team(case)
    case.run("low", on(case, 0, low))
    [healthy] = case.run("middle", on(case, 1, low.but(priority=MIDDLE)))
    case.publish(inventory(node, 2, unhealthy=(0,)))
    case.wait(lambda: case.totals(node).get("healthyCards") == 1, "the operator to have seen the card fall ill")
    assert preempt(case, low.but(priority=HIGH)) == [healthy]
    assert len(case.running("low")) == 1


def test_s27_the_pod_that_loses_least_since_its_checkpoint_goes(case: Case) -> None:
    """It has run longer than the other, and would lose more without its checkpoint."""
    case.node(2)
    low = team(case)
    [saved] = case.run("saved", low)
    [other] = case.run("other", low)
    started = case.pods()[other]["status"]["startTime"]
    case.wait(lambda: moment(-2) > started, "both to have run for a while")
    annotations = {names.POLICY_CHECKPOINT: moment(0)}
    case.cluster.api.patch(f"{case.pods_path}/{saved}", {"metadata": {"annotations": annotations}})
    assert preempt(case, low.but(priority=HIGH)) == [saved]


def moment(seconds: int) -> str:
    """So many seconds from now, as the API writes moments."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize("hindrance", ["taint", "affinity", "cpu"])
def test_s28_nobody_goes_where_kube_scheduler_would_refuse_the_pod_all_the_same(
    case: Case, hindrance: str
) -> None:
    taints = [{"key": "example.com/kept", "value": "true", "effect": "NoSchedule"}] if hindrance == "taint" else []
    case.node(1, taints=taints, cpu="4")
    low = team(case)
    case.run("low", low.but(extra={"tolerations": [{"operator": "Exists"}]}, requests={"cpu": "1"}))
    high = {
        "taint": low,
        "affinity": low.but(extra={"nodeSelector": {"example.com/zone": "elsewhere"}}),
        "cpu": low.but(requests={"cpu": "5"}),
    }[hindrance]
    case.pod("h", high.but(priority=HIGH))
    case.wait_refused("h", "OtherFilters")
    assert case.evictions() == []
    assert case.plans() == []


def test_s28_cpu_that_the_victim_holds_itself_is_no_hindrance(case: Case) -> None:
    case.node(1, cpu="4")
    low = team(case).but(requests={"cpu": "3"})
    [victim] = case.run("low", low)
    assert preempt(case, low.but(priority=HIGH)) == [victim]


def test_s29_who_says_no_is_never_chosen(case: Case) -> None:
    case.node(2)
    low = team(case)
    case.run("guarded", low.but(annotations={names.VOLCANO_PREEMPTABLE: "false"}))
    case.pod("bare", low)
    case.wait_bound("bare")
    case.pod("h", low.but(priority=HIGH))
    case.wait_told("h", "NeverAVictim")
    assert case.evictions() == []


def test_s30_where_no_set_of_victims_is_enough_nobody_goes(case: Case) -> None:
    case.node(2)
    low = team(case)
    case.run("safe", low.but(priority=SAFE))
    case.run("low", low)
    case.pod("h", low.but(ask=Ask(number=2), priority=HIGH))
    case.wait_refused("h", f"{case.nodes[0]}: no room for 2 whole cards")
    assert case.evictions() == []
    assert case.plans() == []


def test_s88_memory_and_cores_are_counted_apart(case: Case) -> None:
    case.node(1)
    low = team(case)
    case.run("memory", low.but(ask=Ask(memory=30_000)))
    case.run("cores", low.but(ask=Ask(memory=1, cores=90)))
    assert preempt(case, low.but(ask=Ask(memory=1, cores=50), priority=HIGH))[0].startswith("cores-")
    assert len(case.running("memory")) == 1
