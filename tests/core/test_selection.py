"""Annotations that choose cards: honoured in both presets' names, or refused by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpu import names
from vgpu.core.presets import HAMI, VOLCANO, ContainerAmounts, PresetSettings, read_request
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.request import CardPolicy, ContainerKind, NodePolicy, PodRequest, Selection
from vgpu.core.selection import SelectionRead, read_selection


def read(annotations: dict[str, str], *, volcano: bool = False) -> SelectionRead | Refusal:
    return read_selection(annotations, use_type_hides_nouse=volcano)


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        ({names.USE_TYPE: "A100,H100"}, Selection(use_types=("a100", "h100"))),
        ({names.USE_TYPE: " h100 ,, A100,a100"}, Selection(use_types=("a100", "h100"))),
        ({names.NOUSE_TYPE: "T4"}, Selection(nouse_types=("t4",))),
        ({names.HAMI_USE_UUID: "GPU-a, GPU-B"}, Selection(use_uuids=frozenset({"GPU-a", "GPU-B"}))),
        ({names.HAMI_NOUSE_UUID: "GPU-a"}, Selection(nouse_uuids=frozenset({"GPU-a"}))),
        ({names.VOLCANO_USE_UUID: "GPU-a"}, Selection(use_uuids=frozenset({"GPU-a"}))),
        ({names.VOLCANO_NOUSE_UUID: "GPU-a"}, Selection(nouse_uuids=frozenset({"GPU-a"}))),
        (
            {names.HAMI_NOUSE_UUID: "GPU-a", names.VOLCANO_NOUSE_UUID: "GPU-b"},
            Selection(nouse_uuids=frozenset({"GPU-a", "GPU-b"})),
        ),
        (
            {names.HAMI_USE_UUID: "GPU-a,GPU-b", names.VOLCANO_USE_UUID: "GPU-b,GPU-c"},
            Selection(use_uuids=frozenset({"GPU-b"})),
        ),
        ({names.HAMI_MODE: "hami-core"}, Selection(mode="shared")),
        ({names.VOLCANO_MODE: "hami-core"}, Selection(mode="shared")),
        ({names.NUMA_BIND: "true"}, Selection(numa_bind=True)),
        ({names.NUMA_BIND: "1"}, Selection(numa_bind=True)),
        ({names.NUMA_BIND: "False"}, Selection()),
        ({names.USE_TYPE: "", names.HAMI_MODE: " ", names.HAMI_SCORING_WEIGHTS: ""}, Selection()),
        ({"example.com/use-gputype": "A100"}, Selection()),
    ],
)
def test_a_selection_is_read_in_both_presets_names(annotations: dict[str, str], want: Selection) -> None:
    assert read(annotations) == SelectionRead(want)
    assert read(annotations, volcano=True) == SelectionRead(want)


def test_hami_applies_use_and_nouse_and_volcano_only_use() -> None:
    annotations = {names.USE_TYPE: "A100", names.NOUSE_TYPE: "PCIE"}
    assert read(annotations) == SelectionRead(Selection(use_types=("a100",), nouse_types=("pcie",)))
    assert read(annotations, volcano=True) == SelectionRead(Selection(use_types=("a100",)))


def test_the_slot_resource_decides_whose_rule_counts() -> None:
    annotations = {names.USE_TYPE: "A100", names.NOUSE_TYPE: "PCIE"}
    nouse = {}
    for preset in (VOLCANO, HAMI):
        containers = [ContainerAmounts("main", ContainerKind.APP, {preset.number: "1"})]
        request = read_request(containers, annotations, PresetSettings())
        assert isinstance(request, PodRequest)
        nouse[preset.name] = request.selection.nouse_types
    assert nouse == {"volcano": (), "hami": ("pcie",)}


@pytest.mark.parametrize(
    ("value", "want"),
    [
        ("binpack", NodePolicy.BINPACK),
        ("Spread", NodePolicy.SPREAD),
        ("topology-aware", NodePolicy.TOPOLOGY),
        ("", None),
    ],
)
def test_hamis_node_policy_is_honoured(value: str, want: NodePolicy | None) -> None:
    assert read({names.HAMI_NODE_POLICY: value}) == SelectionRead(Selection(), node_policy=want)


@pytest.mark.parametrize("policy", NodePolicy)
def test_our_own_policy_wins_over_hamis(policy: NodePolicy) -> None:
    annotations = {names.POLICY_SCORE: policy.value, names.HAMI_NODE_POLICY: "binpack"}
    assert read(annotations) == SelectionRead(Selection(), node_policy=policy)


@pytest.mark.parametrize(
    ("value", "want"),
    [
        ("binpack", (CardPolicy.BINPACK,)),
        ("spread", (CardPolicy.SPREAD,)),
        ("topology-aware", (CardPolicy.TOPOLOGY,)),
        ("mutex", (CardPolicy.MUTEX,)),
        ("numa, mutex,binpack", (CardPolicy.NUMA, CardPolicy.MUTEX, CardPolicy.BINPACK)),
        ("spread,spread", (CardPolicy.SPREAD,)),
        (",", ()),
    ],
)
def test_card_policies_are_a_chain_in_order(value: str, want: tuple[CardPolicy, ...]) -> None:
    assert read({names.HAMI_CARD_POLICY: value}) == SelectionRead(Selection(), card_policies=want)


@pytest.mark.parametrize(
    ("annotation", "value", "help_text"),
    [
        (names.HAMI_MODE, "mig", "write hami-core"),
        (names.HAMI_MODE, "mps", "write hami-core"),
        (names.VOLCANO_MODE, "mig", "write hami-core"),
        (names.HAMI_SCORING_WEIGHTS, "slot=1,core=1,memory=3", "remove"),
        (names.VOLCANO_PODGROUP_POLICY, "spread", "remove"),
        (names.NUMA_BIND, "yes", "write true or false"),
        (names.HAMI_NODE_POLICY, "random", "known are binpack, spread, topology-aware"),
        (names.HAMI_NODE_POLICY, "binpack,spread", "give one policy"),
        (names.HAMI_CARD_POLICY, "binpack,fastest", "known are binpack, spread, topology-aware, mutex, numa"),
        (names.POLICY_SCORE, "mutex", "known are binpack, spread, topology"),
        (names.POLICY_SCORE, "spread,binpack", "give one policy"),
    ],
)
def test_what_is_not_supported_is_refused_by_name_and_value(annotation: str, value: str, help_text: str) -> None:
    refusal = read({annotation: value})
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.UNSUPPORTED_SELECTION
    assert refusal.message.startswith(f"annotation {annotation}: {value!r} is not supported: ")
    assert help_text in refusal.message


def test_uuid_lists_without_a_common_card_are_refused() -> None:
    """An empty selection would mean "any card"."""
    refusal = read({names.HAMI_USE_UUID: "GPU-a", names.VOLCANO_USE_UUID: "GPU-b"})
    assert isinstance(refusal, Refusal)
    assert names.HAMI_USE_UUID in refusal.message
    assert names.VOLCANO_USE_UUID in refusal.message


def test_a_long_value_is_cut_in_the_message() -> None:
    refusal = read({names.HAMI_MODE: "x" * 100_000})
    assert isinstance(refusal, Refusal)
    assert len(refusal.message) < 300


def test_a_pod_without_gpus_is_not_refused_for_its_annotations() -> None:
    containers = [ContainerAmounts("web", ContainerKind.APP, {"cpu": "1"})]
    assert read_request(containers, {names.HAMI_MODE: "mig"}, PresetSettings()) is None


def test_an_unsupported_selection_refuses_the_whole_request() -> None:
    containers = [ContainerAmounts("main", ContainerKind.APP, {HAMI.number: "1"})]
    refusal = read_request(containers, {names.HAMI_MODE: "mig"}, PresetSettings())
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.UNSUPPORTED_SELECTION


known = st.sampled_from(
    [
        names.USE_TYPE, names.NOUSE_TYPE, names.HAMI_USE_UUID, names.HAMI_NOUSE_UUID, names.VOLCANO_USE_UUID,
        names.VOLCANO_NOUSE_UUID, names.HAMI_MODE, names.VOLCANO_MODE, names.NUMA_BIND, names.HAMI_NODE_POLICY,
        names.HAMI_CARD_POLICY, names.HAMI_SCORING_WEIGHTS, names.VOLCANO_PODGROUP_POLICY, names.POLICY_SCORE,
    ]
)  # fmt: skip
values = st.one_of(st.text(max_size=20), st.sampled_from(["hami-core", "binpack,mutex", "true", "GPU-a,GPU-b"]))


@given(st.dictionaries(known, values), st.booleans())
def test_no_annotation_raises_and_none_is_passed_over(annotations: dict[str, str], volcano: bool) -> None:
    """Whatever is not blank has an effect or refuses the pod."""
    got = read(annotations, volcano=volcano)
    if isinstance(got, Refusal):
        assert any(f"annotation {key}:" in got.message for key in annotations)
        return
    for key, value in annotations.items():
        harmless = key == names.NUMA_BIND or (key == names.NOUSE_TYPE and volcano)
        if value.replace(",", "").strip() and not harmless:
            assert got != SelectionRead(Selection()), key
