"""S01-S13: whole cards and shares, who goes for whom, and who comes back, on one node of four cards."""

import pytest

from tests.cluster.preempt.objects import HIGH, LOW, WHOLE, Ask, Kind
from tests.cluster.preempt.stage import Case
from vgpu import names

pytestmark = pytest.mark.cluster

QUARTERS = Ask(number=4, percent=25, cores=25)
SIXTIES = Ask(number=4, percent=60, cores=60)
FOUR_WHOLE = Ask(number=4)


def two_queues(case: Case, deserved: str = "4") -> tuple[Kind, Kind]:
    """Work of a queue that deserves nothing, and work of one that deserves so many cards."""
    low, high = case.queue("low"), case.queue("high", deserved={"cards": deserved})
    return Kind(queue=low, priority=LOW), Kind(queue=high, priority=HIGH)


def test_s01_s02_each_whole_card_comes_from_one_victim_and_goes_back_to_one(case: Case) -> None:
    case.node()
    low, high = two_queues(case)
    before = case.cards(*case.run("low", low, 4))
    for number in range(1, 5):
        gone = case.running("low")
        case.pod(f"h{number}", high)
        case.wait_bound(f"h{number}")
        case.wait_running("low", 4 - number)
        [victim] = gone.keys() - case.running("low").keys()
        assert case.evictions()[-1] == victim
        assert len(case.evictions()) == number
    assert case.cards("h1", "h2", "h3", "h4") == before
    for number in range(1, 5):
        case.delete(f"h{number}")
        case.wait_running("low", number)
        left = [f"h{later}" for later in range(number + 1, 5)]
        assert case.cards(*case.running("low"), *left) == before
    assert len(case.evictions()) == 4


@pytest.mark.parametrize(
    ("victims", "ask", "evicted"),
    [(QUARTERS, SIXTIES, 3), (QUARTERS, FOUR_WHOLE, 4), (WHOLE, SIXTIES, 4)],
    ids=["s03-s04", "s05-s06", "s07-s08"],
)
def test_s03_to_s08_as_many_as_needed_go_and_all_come_back(
    case: Case, victims: Ask, ask: Ask, evicted: int
) -> None:
    case.node()
    low, high = two_queues(case)
    case.run("low", low.but(ask=victims), 4)
    before = {name: pod["metadata"]["uid"] for name, pod in case.running("low").items()}
    uid = case.pod("h", high.but(ask=ask))
    case.wait_bound("h")
    assert len(case.evictions()) == evicted
    stayed = case.uids("low")
    assert len(stayed) == 4 - evicted
    assert stayed <= set(before.values())
    assert {before[name] for name in case.evictions()} == set(before.values()) - stayed
    assert len(set(case.cards("h"))) == 4
    assert case.plan_for(uid).exact
    assert not case.waiting("low").keys() & before.keys()
    assert len(case.waiting("low")) == evicted, "what comes back waits: no room is left for it"
    case.delete("h")
    case.wait_running("low", 4)
    assert stayed <= case.uids("low"), "who was spared was never touched"
    assert len(case.evictions()) == evicted


def test_s05_a_whole_card_is_bound_only_after_the_last_share_on_it_is_gone(case: Case) -> None:
    case.node()
    low, high = two_queues(case)
    case.run("low", low.but(ask=QUARTERS, linger=True), 4)
    case.pod("h", high.but(ask=FOUR_WHOLE))
    leaving = case.wait_leaving("low", 4)
    case.let_go(*leaving[:3])
    case.wait(lambda: len(case.terminating("low")) == 1, "three victims to be gone")
    case.wait(lambda: set(holders(case, case.nodes[0])) == {leaving[3]}, "the inventory to show the last alone")
    assert case.node_of("h") == ""
    case.let_go(leaving[3])
    case.wait_bound("h")


def test_s09_s10_in_one_queue_the_fewest_of_the_lowest_class_go_and_return(case: Case) -> None:
    case.node()
    team = case.queue("team")
    case.run("middle", Kind(queue=team, priority=50), 2)
    case.run("low", Kind(queue=team, priority=LOW), 2)
    case.pod("h", Kind(queue=team, priority=HIGH))
    case.wait_bound("h")
    assert len(case.evictions()) == 1
    assert case.evictions()[0].startswith("low-")
    case.delete("h")
    case.wait_running("low", 2)
    assert len(case.running("middle")) == 2


def test_s11_equal_classes_do_not_evict_each_other(case: Case) -> None:
    case.node()
    team = case.queue("team")
    case.run("low", Kind(queue=team, priority=LOW), 4)
    case.pod("h", Kind(queue=team, priority=LOW))
    case.wait_told("h", "NoLowerRank")
    assert case.evictions() == []
    assert case.plans() == []


def test_s12_cards_of_the_old_device_plugin_are_left_alone_until_its_pods_end(case: Case) -> None:
    """As far as a simulated node shows it: what the old plugin's pods carry, on a node of ours."""
    node = case.node()
    low, high = two_queues(case)
    for index in (0, 1):
        old = Kind(
            class_name="p10", annotations={names.VOLCANO_DP_INDEX: str(index), names.VOLCANO_DP_ASSIGNED: "true"}
        )
        body = old.template(f"old{index}")
        body["metadata"]["name"] = f"old{index}"
        body["spec"] |= {"nodeName": node, "schedulerName": "another-scheduler"}
        body["spec"]["containers"][0]["resources"] = {"limits": {names.VOLCANO_DP_MEMORY: "1000"}}
        case.recorder.judge.bound_by_hand.add(f"{case.namespace}/old{index}")
        case.cluster.api.post(case.pods_path, body)
    case.wait_running("old0", 1)
    case.wait_running("old1", 1)
    free = [case.card(2), case.card(3)]
    case.wait(lambda: len(holders(case, node)) == 2, "the inventory to show the old plugin's pods")
    assert case.cards(*case.run("low", low, 2)) == free
    case.pod("h1", high)
    case.pod("h2", high)
    case.wait_bound("h1", "h2")
    assert case.cards("h1", "h2") == free
    case.pod("h3", high)
    case.wait_told("h3", "NeverAVictim")
    assert len(case.evictions()) == 2
    case.delete("old0")
    case.wait_bound("h3")
    assert case.cards("h3") == [case.card(0)]
    assert len(case.running("old1")) == 1


def holders(case: Case, node: str) -> list[str]:
    path = f"/apis/{names.API_VERSION}/{names.INVENTORY_PLURAL}/{node}"
    cards = case.cluster.api.get(path).get("status", {}).get("gpus", ())
    return [holder["name"] for card in cards for holder in card.get("holders", ())]


def test_s13_nobody_is_evicted_on_a_node_whose_device_plugin_is_dead(case: Case) -> None:
    node = case.node()
    low, high = two_queues(case)
    before = case.cards(*case.run("low", low, 4))
    case.cluster.set_allocatable(node, names.VOLCANO_NUMBER, 0)
    path = f"/apis/{names.API_VERSION}/{names.INVENTORY_PLURAL}/{node}"
    case.wait(lambda: "NoAllocatable" in str(case.cluster.api.get(path).get("status")), "the node to be closed")
    case.pod("h", high)
    case.wait_told("h", "NoAllocatable")
    case.wait_refused("h", node)
    assert case.evictions() == []
    assert case.cards(*case.running("low")) == before
    case.cluster.set_allocatable(node, names.VOLCANO_NUMBER, 40)
    case.wait_bound("h")
    assert len(case.evictions()) == 1
