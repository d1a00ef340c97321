"""R05 on the real kubelet: pods of equal card counts, bound at the same moment, never get each other's cards."""

import pytest

from tests.cluster.node.pairs import PAIRS, bound_together, pairs, run_pairs
from tests.cluster.node.stage import GRACE_SECONDS, PODS, NodeStage
from tests.cluster.node.witness import assert_exact, judge

pytestmark = pytest.mark.cluster

ROUNDS_IN_CI = 4
ROUNDS_OF_SOAK = 20
GUESSED_PAIRS, GUESSED_ROUNDS = 10, 8
"""Two pods are mixed up only if both wait at one moment, and then by even chance: so many rounds at most until
that is seen."""
GUESSING_AGENT = ("-m", "tests.cluster.node.guessing_agent")


def run_rounds(stage: NodeStage, rounds: int) -> None:
    """Each round's pods go while the next one's come, so that slots pass from pod to pod."""
    compared = together = 0
    for number in range(rounds):
        since = stage.position()
        wanted = list(pairs(number * PAIRS))
        pods = run_pairs(stage, wanted)
        together += bound_together(stage, wanted, since)
        compared += assert_exact(stage, pods)
        for name in pods:
            stage.node.api.delete(f"{PODS}/{name}", {"gracePeriodSeconds": GRACE_SECONDS})
    print(f"{compared} containers compared, {together} of {rounds * PAIRS} pairs bound within a second")
    assert compared == rounds * PAIRS * 2
    assert together > rounds * PAIRS // 2, "too few pairs were bound together to show anything"


@pytest.mark.timeout(1200)
def test_r05_200_pods_in_pairs_of_equal_counts_each_find_their_own_cards(stage: NodeStage) -> None:
    run_rounds(stage, ROUNDS_IN_CI)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_r05_1000_pods_in_pairs_of_equal_counts_each_find_their_own_cards(stage: NodeStage) -> None:
    run_rounds(stage, ROUNDS_OF_SOAK)


@pytest.mark.timeout(900)
def test_r05_the_same_run_without_the_identity_step_mixes_pods_up_and_is_found_out(stage: NodeStage) -> None:
    """The agent takes any pod that waits for as many cards, as plugins do that kubelet tells nothing."""
    stage.kill_agent()
    stage.start_agent(GUESSING_AGENT)
    try:
        stage.wait_open()
        for number in range(GUESSED_ROUNDS):
            verdict = judge(stage, run_pairs(stage, list(pairs(number * GUESSED_PAIRS, GUESSED_PAIRS))))
            print(f"{len(verdict.swapped)} of {verdict.compared} containers had another pod's cards")
            assert verdict.compared == GUESSED_PAIRS * 2
            if verdict.swapped:
                break
            stage.remove_pods()
        assert verdict.swapped
        assert verdict.faults
    finally:
        stage.remove_pods()
        stage.restart_agent()
