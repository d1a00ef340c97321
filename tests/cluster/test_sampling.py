"""kube-scheduler looks at a tenth of the nodes; the pod that one card of them all can take is always bound."""

import pytest

from benchmarks.freed_card import REPETITIONS, TARGET, answers, repeat, scenario
from devcluster import Cluster

pytestmark = pytest.mark.cluster


def test_a_pod_finds_its_card_with_no_nomination_inside_the_sample_and_exactly_one_outside(
    clean_cluster: Cluster,
) -> None:
    """No attempt waits for kube-scheduler's flush of hopeless pods, which comes after five minutes."""
    with scenario(clean_cluster) as operators:
        rows = repeat(operators)
    assert len(rows) == REPETITIONS
    assert [row for row in rows if row.node != TARGET] == []
    assert [row for row in rows if row.nominations != (0 if row.held else 1)] == []
    assert {row.held for row in rows} == {True, False}


def test_answers_are_read_from_the_log() -> None:
    log = """
    x DEBUG vgpu.controller.extender filter pod=default/a names=100 nodes=0 missed=True
    x DEBUG vgpu.controller.extender filter pod=default/a names=1 nodes=1 missed=False
    x DEBUG vgpu.controller.extender filter pod=default/b names=100 nodes=1 missed=False
    """
    assert answers(log) == {"a": ((100, 0), (1, 1)), "b": ((100, 1),)}
