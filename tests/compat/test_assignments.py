"""Assignments of other systems: which one counts, and that nothing a person wrote raises."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vgpu import names
from vgpu.compat import read_legacy
from vgpu.core.facts import AssignmentFact, AssignmentSource
from vgpu.core.presets import HAMI, VOLCANO, ContainerAmounts, PresetSettings
from vgpu.core.reasons import Refusal
from vgpu.core.request import ContainerKind

APP = ContainerKind.APP
HAMI_KEYS = {names.HAMI_NODE: "n1", names.HAMI_ALLOCATED: "GPU-h,NVIDIA,100,10:;"}
VOLCANO_KEYS = {names.VOLCANO_NODE: "n1", names.VOLCANO_IDS: "GPU-v,NVIDIA,100,10:"}
DP_KEYS = {names.VOLCANO_DP_INDEX: "2"}


def one_container(**amounts: str) -> list[ContainerAmounts]:
    return [ContainerAmounts("main", APP, amounts)]


ASKING = one_container(**{HAMI.number: "1", VOLCANO.number: "1", names.VOLCANO_DP_NUMBER: "1"})


@pytest.mark.parametrize(
    ("resource", "want"),
    [
        (HAMI.number, AssignmentSource.HAMI),
        (VOLCANO.number, AssignmentSource.VOLCANO),
        (VOLCANO.memory, AssignmentSource.VOLCANO),
        (names.VOLCANO_DP_MEMORY, AssignmentSource.VOLCANO_DP),
    ],
)
def test_of_several_systems_the_one_that_the_pod_asks_counts(resource: str, want: AssignmentSource) -> None:
    """A pod copied with its annotations carries what belongs to another."""
    annotations = {**HAMI_KEYS, **VOLCANO_KEYS, **DP_KEYS}
    fact = read_legacy(annotations, "n1", one_container(**{resource: "1"}))
    assert isinstance(fact, AssignmentFact)
    assert fact.source is want


@pytest.mark.parametrize("amounts", [{}, {"example.com/gpu": "1"}, {HAMI.number: "0", VOLCANO.number: "0"}])
def test_annotations_of_a_pod_that_asks_for_no_gpu_hold_nothing(amounts: dict[str, str]) -> None:
    """Anybody may write annotations: without this rule they alone would take every card of a node."""
    assert read_legacy({**HAMI_KEYS, **VOLCANO_KEYS, **DP_KEYS}, "n1", one_container(**amounts)) is None


@pytest.mark.parametrize(
    ("keys", "resources"),
    [
        (HAMI_KEYS, HAMI.amounts),
        (VOLCANO_KEYS, VOLCANO.amounts),
        (DP_KEYS, (names.VOLCANO_DP_MEMORY, names.VOLCANO_DP_NUMBER)),
    ],
    ids=["hami", "volcano", "volcano-dp"],
)
def test_any_amount_of_a_system_makes_its_annotation_count(
    keys: dict[str, str], resources: tuple[str, ...]
) -> None:
    for resource in resources:
        assert isinstance(read_legacy(keys, "n1", one_container(**{resource: "1"})), AssignmentFact), resource


def test_a_broken_annotation_of_the_asked_system_is_not_replaced_by_another() -> None:
    annotations = {**HAMI_KEYS, names.VOLCANO_NODE: "n1", names.VOLCANO_IDS: "broken"}
    assert isinstance(read_legacy(annotations, "n1", one_container(**{VOLCANO.number: "1"})), Refusal)


@pytest.mark.parametrize("keys", [HAMI_KEYS, VOLCANO_KEYS, DP_KEYS], ids=["hami", "volcano", "volcano-dp"])
def test_an_unbound_pod_holds_nothing(keys: dict[str, str]) -> None:
    assert read_legacy(keys, "", ASKING) is None


@pytest.mark.parametrize("keys", [HAMI_KEYS, VOLCANO_KEYS], ids=["hami", "volcano"])
def test_only_the_node_of_the_pod_decides_what_is_stale(keys: dict[str, str]) -> None:
    """The guarded rule: the same annotation counts on its own node and is reported on any other."""
    assert isinstance(read_legacy(keys, "n1", ASKING), AssignmentFact)
    refusal = read_legacy(keys, "n2", ASKING)
    assert isinstance(refusal, Refusal)
    assert "'n1', the pod is on n2" in refusal.message


def test_a_pod_without_keys_of_others_has_no_assignment() -> None:
    assert read_legacy({"example.com/a": "b"}, "n1", one_container(**{HAMI.number: "1"})) is None


def test_older_lists_without_init_entries_belong_to_the_app_containers() -> None:
    containers = [ContainerAmounts("fetch", ContainerKind.INIT, {}), *one_container(**{HAMI.number: "1"})]
    fact = read_legacy(HAMI_KEYS, "n1", containers)
    assert isinstance(fact, AssignmentFact)
    assert [c.name for c in fact.containers] == ["main"]


def test_an_index_listed_twice_is_one_card() -> None:
    fact = read_legacy({names.VOLCANO_DP_INDEX: "3,3, 1"}, "n1", ASKING)
    assert isinstance(fact, AssignmentFact)
    assert [card.uuid for card in fact.containers[0].cards] == ["index:3", "index:1"]
    assert all(card.whole for card in fact.containers[0].cards)


def test_deeply_nested_json_is_refused() -> None:
    annotations = {**HAMI_KEYS, names.HAMI_MIG_ALLOCATIONS: "[" * 100_000}
    assert isinstance(read_legacy(annotations, "n1", ASKING), Refusal)


pieces = st.lists(
    st.sampled_from(["GPU-a", "GPU-b[0-1]", ",", ":", ";", "NVIDIA", "0", "100", "-1", "x"]), max_size=14
)
texts = st.one_of(pieces.map("".join), st.text(max_size=20))
keys = st.sampled_from(
    [
        names.HAMI_ALLOCATED, names.HAMI_TO_ALLOCATE, names.HAMI_MIG_ALLOCATIONS, names.VOLCANO_IDS,
        names.VOLCANO_TO_ALLOCATE, names.VOLCANO_DP_INDEX,
    ]
)  # fmt: skip
kinds = st.sampled_from(ContainerKind)
amounts = st.dictionaries(
    st.sampled_from([HAMI.number, VOLCANO.number, names.VOLCANO_DP_MEMORY]), st.sampled_from(["0", "1", "x"])
)


@settings(max_examples=300)
@given(st.dictionaries(keys, texts), st.lists(st.tuples(kinds, amounts), max_size=3), st.integers(1, 2**30))
def test_no_annotation_raises_and_what_counts_is_sane(
    annotations: dict[str, str], spec: list[tuple[ContainerKind, dict[str, str]]], factor: int
) -> None:
    containers = [ContainerAmounts(f"c{i}", kind, asked) for i, (kind, asked) in enumerate(spec)]
    nodes = {names.HAMI_NODE: "n1", names.VOLCANO_NODE: "n1"}
    fact = read_legacy({**annotations, **nodes}, "n1", containers, PresetSettings(volcano_memory_factor=factor))
    if isinstance(fact, Refusal):
        assert len(fact.message) < 500
    elif fact is not None:
        assert fact.containers
        assert {c.name for c in fact.containers} <= {c.name for c in containers}
        for held in fact.containers:
            uuids = [card.uuid for card in held.cards]
            assert uuids
            assert len(set(uuids)) == len(uuids)
            assert all(card.whole or card.memory_mib > 0 for card in held.cards)
            assert all(card.cores >= 0 and card.memory_mib >= 0 for card in held.cards)
