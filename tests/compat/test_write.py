"""What the other systems' device plugins get to read, and that it reads back as the assignment it was made of."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vgpu import names
from vgpu.compat import compat_annotations, read_legacy
from vgpu.core.facts import AssignedCard, AssignedContainer, AssignmentFact, AssignmentSource, Plugin
from vgpu.core.presets import HAMI, VOLCANO, ContainerAmounts, PresetSettings
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.request import ContainerKind

INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP
few = settings(max_examples=200)
NOW = 1_790_000_000
SHARE = AssignedCard("GPU-a", 3000, 50, whole=False)
WHOLE = AssignedCard("GPU-b", 40_960, 0, whole=True)


def assignment(*containers: AssignedContainer) -> AssignmentFact:
    return AssignmentFact(AssignmentSource.VGPU, "n1", "0123456789abcdef", containers)


def test_our_own_agent_needs_no_annotations() -> None:
    made = assignment(AssignedContainer("main", APP, (SHARE,)))
    assert compat_annotations(made, Plugin.VGPU, [], unix_seconds=NOW) == {}


def test_hamis_plugin_finds_every_container_by_its_position() -> None:
    spec = [
        ContainerAmounts("fetch", INIT, {}),
        ContainerAmounts("cache", SIDECAR, {HAMI.number: "1"}),
        ContainerAmounts("web", APP, {}),
        ContainerAmounts("train", APP, {HAMI.number: "2"}),
    ]
    made = assignment(
        AssignedContainer("cache", SIDECAR, (SHARE,)), AssignedContainer("train", APP, (SHARE, WHOLE))
    )
    want = ";GPU-a,NVIDIA,3000,50:;;GPU-a,NVIDIA,3000,50:GPU-b,NVIDIA,40960,100:;"
    assert compat_annotations(made, Plugin.HAMI, spec, unix_seconds=NOW) == {
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-time": "1790000000",
        "hami.io/vgpu-devices-allocated": want,
        "hami.io/vgpu-devices-to-allocate": want,
        "hami.io/bind-time": "1790000000",
        "hami.io/bind-phase": "allocating",
    }


def test_volcanos_plugin_finds_the_one_container_in_units_of_its_factor() -> None:
    spec = [ContainerAmounts("web", APP, {}), ContainerAmounts("main", APP, {VOLCANO.number: "2"})]
    made = assignment(AssignedContainer("main", APP, (SHARE, WHOLE)))
    presets = PresetSettings(volcano_memory_factor=1000)
    want = "GPU-a,NVIDIA,3,50:GPU-b,NVIDIA,40,100:"
    assert compat_annotations(made, Plugin.VOLCANO, spec, unix_seconds=NOW, settings=presets) == {
        "volcano.sh/vgpu-node": "n1",
        "volcano.sh/vgpu-time": "1790000000",
        "volcano.sh/vgpu-ids-new": want,
        "volcano.sh/devices-to-allocate": want,
        "volcano.sh/bind-time": "1790000000",
        "volcano.sh/bind-phase": "allocating",
    }


@pytest.mark.parametrize(
    "containers",
    [
        (AssignedContainer("a", APP, (SHARE,)), AssignedContainer("b", APP, (SHARE,))),
        (AssignedContainer("a", INIT, (SHARE,)),),
    ],
    ids=["two containers", "init container"],
)
def test_volcanos_plugin_is_never_left_to_guess_the_container(containers: tuple[AssignedContainer, ...]) -> None:
    refusal = compat_annotations(assignment(*containers), Plugin.VOLCANO, [], unix_seconds=NOW)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.MULTI_CONTAINER_DEFERRED


def test_less_than_a_unit_is_refused_since_zero_would_be_no_limit() -> None:
    made = assignment(AssignedContainer("main", APP, (AssignedCard("GPU-a", 999, 0, whole=False),)))
    presets = PresetSettings(volcano_memory_factor=1000)
    refusal = compat_annotations(made, Plugin.VOLCANO, [], unix_seconds=NOW, settings=presets)
    assert isinstance(refusal, Refusal)
    assert "999 MiB are less than one unit of 1000 MiB" in refusal.message


def test_a_core_limit_on_a_whole_card_is_kept() -> None:
    """Alone on the card because no memory was given, yet limited to 30 percent of its cores."""
    made = assignment(AssignedContainer("main", APP, (AssignedCard("GPU-a", 40_960, 30, whole=True),)))
    written = compat_annotations(made, Plugin.HAMI, [ContainerAmounts("main", APP, {})], unix_seconds=NOW)
    assert isinstance(written, dict)
    assert written[names.HAMI_ALLOCATED] == "GPU-a,NVIDIA,40960,30:;"


uuids = st.text("abcdef0123456789-", min_size=1, max_size=8).map("GPU-".__add__)
shares = st.builds(
    AssignedCard, uuids, memory_mib=st.integers(1, 2**24), cores=st.integers(0, 99), whole=st.just(False)
)
wholes = st.builds(AssignedCard, uuids, memory_mib=st.integers(0, 2**24), cores=st.just(100), whole=st.just(True))
held = st.lists(shares | wholes, max_size=4, unique_by=lambda card: card.uuid).map(tuple)


@few
@given(
    st.lists(st.tuples(st.sampled_from([INIT, SIDECAR]), held), max_size=3), st.lists(held, min_size=1, max_size=3)
)
def test_what_is_written_for_hami_reads_back_as_it_was(
    init: list[tuple[ContainerKind, tuple[AssignedCard, ...]]], apps: list[tuple[AssignedCard, ...]]
) -> None:
    spec = [(f"c{i}", kind, cards) for i, (kind, cards) in enumerate([*init, *((APP, cards) for cards in apps)])]
    made = assignment(*(AssignedContainer(name, kind, cards) for name, kind, cards in spec if cards))
    containers = [ContainerAmounts(name, kind, {HAMI.number: str(len(cards))}) for name, kind, cards in spec]
    written = compat_annotations(made, Plugin.HAMI, containers, unix_seconds=NOW)
    assert isinstance(written, dict)
    read = read_legacy(written, "n1", containers)
    if made.containers:
        assert read == AssignmentFact(AssignmentSource.HAMI, "n1", "", made.containers)
    else:
        assert read is None


@few
@given(held.filter(bool), st.integers(0, 2), st.integers(1, 4096))
def test_what_is_written_for_volcano_reads_back_and_never_exceeds_what_is_booked(
    cards: tuple[AssignedCard, ...], others: int, factor: int
) -> None:
    presets = PresetSettings(volcano_memory_factor=factor)
    containers = [ContainerAmounts(f"web{i}", APP, {}) for i in range(others)]
    containers.append(ContainerAmounts("main", APP, {VOLCANO.number: str(len(cards))}))
    made = assignment(AssignedContainer("main", APP, cards))
    written = compat_annotations(made, Plugin.VOLCANO, containers, unix_seconds=NOW, settings=presets)
    if any(0 < card.memory_mib < factor for card in cards):
        assert isinstance(written, Refusal)
        return
    assert isinstance(written, dict)
    read = read_legacy(written, "n1", containers, presets)
    assert isinstance(read, AssignmentFact)
    (container,) = read.containers
    assert container.name == "main"
    for got, want in zip(container.cards, cards, strict=True):
        assert (got.uuid, got.cores, got.whole) == (want.uuid, want.cores, want.whole)
        assert 0 <= want.memory_mib - got.memory_mib < factor
