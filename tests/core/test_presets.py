"""Requests of both presets: what every form means, and by which words an odd one is refused."""

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from vgpu.core.presets import (
    HAMI,
    MAX_CARD_MEMORY_MIB,
    PRESETS,
    VOLCANO,
    ContainerAmounts,
    Preset,
    PresetSettings,
    read_request,
)
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.request import CardRequest, ContainerKind, ContainerRequest, PodRequest
from vgpu.units import MAX_COUNT

INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


def container(preset: Preset, name: str = "main", kind: ContainerKind = APP, **amounts: str) -> ContainerAmounts:
    """Amounts by their meaning: number, memory, percent, cores."""
    resources = dict(zip(("number", "memory", "percent", "cores"), preset.amounts, strict=True))
    return ContainerAmounts(name, kind, {resources[key]: text for key, text in amounts.items()})


def read(*containers: ContainerAmounts, settings: PresetSettings | None = None) -> PodRequest | Refusal | None:
    return read_request(containers, {}, settings or PresetSettings())


def card(*containers: ContainerAmounts, settings: PresetSettings | None = None) -> CardRequest:
    request = read(*containers, settings=settings)
    assert isinstance(request, PodRequest), request
    return request.containers[0].card


both = pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)


@both
def test_the_number_names_the_slot_resource(preset: Preset) -> None:
    want = PodRequest(preset.number, (ContainerRequest("main", APP, 2, CardRequest()),))
    assert read(container(preset, number="2")) == want


@both
@pytest.mark.parametrize(
    ("amounts", "want", "alone"),
    [
        pytest.param({}, CardRequest(), True, id="R46 number only is the whole card"),
        pytest.param({"memory": "3k"}, CardRequest(memory_mib=3000), False, id="the server's form of 3000"),
        pytest.param({"memory": "0"}, CardRequest(), True, id="R47 memory 0 is unset"),
        pytest.param({"percent": "0"}, CardRequest(), True, id="R47 percent 0 is unset"),
        pytest.param({"percent": "50"}, CardRequest(memory_percent=50), False, id="half a card"),
        pytest.param({"percent": "100"}, CardRequest(memory_percent=100), True, id="percent 100 is alone"),
        pytest.param({"cores": "30"}, CardRequest(cores=30), True, id="cores without memory keep it whole"),
        pytest.param({"memory": "1", "cores": "30"}, CardRequest(memory_mib=1, cores=30), False, id="share"),
        pytest.param({"memory": "1", "cores": "100"}, CardRequest(memory_mib=1, cores=100), True, id="all cores"),
        pytest.param({"memory": "1"}, CardRequest(memory_mib=1, cores=0), False, id="R51 no cores are implied"),
        pytest.param({"memory": "0", "percent": "20"}, CardRequest(memory_percent=20), False, id="0 does not win"),
        pytest.param({"memory": "20", "percent": "0"}, CardRequest(memory_mib=20), False, id="nor does 0 percent"),
    ],
)
def test_amounts_mean_the_same_in_both_presets(
    preset: Preset, amounts: dict[str, str], want: CardRequest, alone: bool
) -> None:
    got = card(container(preset, number="1", **amounts))
    assert (got, got.alone) == (want, alone)


def test_percent_wins_in_volcano_and_memory_in_hami() -> None:
    amounts = {"number": "1", "memory": "2000", "percent": "25"}
    assert card(container(VOLCANO, **amounts)) == CardRequest(memory_percent=25)
    assert card(container(HAMI, **amounts)) == CardRequest(memory_mib=2000)


def test_memory_counts_in_units_of_its_own_presets_factor() -> None:
    settings = PresetSettings(volcano_memory_factor=1024, hami_memory_factor=256)
    assert card(container(VOLCANO, number="1", memory="8"), settings=settings) == CardRequest(memory_mib=8192)
    assert card(container(HAMI, number="1", memory="8"), settings=settings) == CardRequest(memory_mib=2048)


@both
def test_a_pod_without_amounts_asks_for_no_gpu(preset: Preset) -> None:
    zeros = container(preset, number="0", memory="0", percent="0", cores="0")
    other = ContainerAmounts("web", APP, {"cpu": "100m", "example.com/disk": "-1"})
    assert read() is None
    assert read(zeros, other) is None


@both
@pytest.mark.parametrize(
    ("amounts", "what", "value"),
    [
        ({"number": "-1"}, "number", "'-1' is negative"),
        ({"number": "500m"}, "number", "'500m' is not a whole number"),
        ({"number": ""}, "number", "'' is no quantity"),
        ({"number": "two"}, "number", "'two' is no quantity"),
        ({"number": "1e99"}, "number", "'1e99' has an exponent beyond"),
        ({"number": str(MAX_COUNT + 1)}, "number", "beyond what can be counted"),
        ({"number": "9" * 5000}, "number", "is no quantity"),
        ({"number": "1", "memory": "-1k"}, "memory", "'-1k' is negative"),
        ({"number": "1", "memory": "1.5"}, "memory", "'1.5' is not a whole number"),
        ({"number": "1", "memory": "nan"}, "memory", "'nan' is no quantity"),
        ({"number": "1", "memory": "8Gi"}, "memory", "without suffix: 8 GiB are 8192"),
        ({"number": "1", "memory": str(MAX_CARD_MEMORY_MIB + 1)}, "memory", "more than any card has"),
        ({"number": "1", "memory": str(MAX_COUNT)}, "memory", "more than any card has"),
        ({"number": "1", "percent": "-1"}, "percent", "'-1' is negative"),
        ({"number": "1", "percent": "101"}, "percent", "101 is more than 100 percent"),
        ({"number": "1", "percent": "0.5"}, "percent", "'0.5' is not a whole number"),
        ({"number": "1", "percent": "101", "memory": "5"}, "percent", "101 is more than 100 percent"),
        ({"number": "1", "cores": "-5"}, "cores", "'-5' is negative"),
        ({"number": "1", "cores": "101"}, "cores", "101 is more than 100 percent"),
        ({"number": "0", "cores": "101"}, "cores", "101 is more than 100 percent"),
    ],
)
def test_an_odd_amount_is_refused_by_container_resource_and_value(
    preset: Preset, amounts: dict[str, str], what: str, value: str
) -> None:
    """R47, R49: each message says which container, which resource, what stands there and what would be right."""
    refusal = read(container(preset, name="train", **amounts))
    resource = dict(zip(("number", "memory", "percent", "cores"), preset.amounts, strict=True))[what]
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.INVALID_REQUEST
    assert refusal.message.startswith(f"container train: {resource}: ")
    assert value in refusal.message
    assert any(word in refusal.message for word in ("write", "without suffix"))
    assert len(refusal.message) < 400


@both
@pytest.mark.parametrize("number", [{}, {"number": "0"}], ids=["absent", "zero"])
@pytest.mark.parametrize(
    ("amounts", "named"),
    [({"memory": "2k"}, "memory 2000"), ({"percent": "10"}, "percentage 10"), ({"cores": "5"}, "cores 5")],
    ids=lambda value: "",
)
def test_amounts_without_a_number_say_to_add_it(
    preset: Preset, number: dict[str, str], amounts: dict[str, str], named: str
) -> None:
    """kubelet would never call Allocate, and the container would see every card."""
    refusal = read(container(preset, **number, **amounts))
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.NUMBER_MISSING
    assert f"add {preset.number}, 1 or more" in refusal.message
    assert named.split()[1] in refusal.message


def test_memory_of_the_other_preset_says_which_name_to_use() -> None:
    mixed = ContainerAmounts("main", APP, {VOLCANO.number: "1", HAMI.memory: "100", HAMI.cores: "5"})
    refusal = read(mixed)
    assert isinstance(refusal, Refusal)
    assert refusal.message.endswith(f"beside {VOLCANO.number} write {VOLCANO.memory}, {VOLCANO.cores}")


def test_both_presets_in_one_pod_are_refused_by_name() -> None:
    refusal = read(container(VOLCANO, name="a", number="1"), container(HAMI, name="b", number="1"))
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.INVALID_REQUEST
    for word in ("container a", VOLCANO.number, "container b", HAMI.number):
        assert word in refusal.message


def test_both_presets_in_one_container_are_refused() -> None:
    refusal = read(ContainerAmounts("main", APP, {VOLCANO.number: "1", HAMI.number: "1"}))
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.INVALID_REQUEST


def test_zeros_of_the_other_preset_are_no_mixture() -> None:
    got = read(ContainerAmounts("main", APP, {VOLCANO.number: "1", HAMI.number: "0", HAMI.memory: "0"}))
    assert isinstance(got, PodRequest)
    assert got.slot_resource == VOLCANO.number


@pytest.mark.parametrize("text", ["0", "1", "-3", "1k"])
def test_a_priority_is_taken_and_changes_nothing(text: str) -> None:
    plain = {HAMI.number: "1", HAMI.memory: "100"}
    assert HAMI.priority
    got = read(ContainerAmounts("main", APP, {**plain, HAMI.priority: text}))
    assert got == read(ContainerAmounts("main", APP, plain))
    assert read(ContainerAmounts("main", APP, {HAMI.priority: text})) is None


def test_a_priority_that_is_no_number_is_refused() -> None:
    assert HAMI.priority
    refusal = read(ContainerAmounts("main", APP, {HAMI.number: "1", HAMI.priority: "high"}))
    assert isinstance(refusal, Refusal)
    assert f"container main: {HAMI.priority}: 'high'" in refusal.message


def test_containers_keep_their_order_kind_and_own_amounts() -> None:
    """R52: containers without cards leave no trace, the others keep position and kind."""
    request = read(
        container(HAMI, name="early", kind=SIDECAR, number="1", memory="10"),
        ContainerAmounts("wait", INIT, {}),
        container(HAMI, name="prepare", kind=INIT, number="2"),
        container(HAMI, name="late", kind=SIDECAR, number="1", memory="20"),
        container(HAMI, name="warm", kind=INIT, number="1", cores="5"),
        ContainerAmounts("proxy", SIDECAR, {}),
        ContainerAmounts("web", APP, {}),
        container(HAMI, name="train", number="3", percent="50"),
    )
    assert isinstance(request, PodRequest)
    assert [(c.name, c.kind, c.number) for c in request.containers] == [
        ("early", SIDECAR, 1),
        ("prepare", INIT, 2),
        ("late", SIDECAR, 1),
        ("warm", INIT, 1),
        ("train", APP, 3),
    ]
    assert request.sidecars_before == (("prepare", ("early",)), ("warm", ("early", "late")))
    assert request.slots == 5
    assert not request.only_init


def test_requests_of_one_job_compare_equal() -> None:
    pods = [read(container(VOLCANO, number="1", memory=text)) for text in ("2000", "2k")]
    assert pods[0] == pods[1]
    assert hash(pods[0]) == hash(pods[1])


texts = st.one_of(
    st.integers().map(str),
    st.text(max_size=12),
    st.sampled_from(["1k", "-1", "1e30", "9" * 70, "8Gi", "1500m", "0", "100", "101"]),
)
resources = st.sampled_from([r for p in PRESETS for r in (*p.amounts, p.priority or "cpu")])
containers = st.builds(
    ContainerAmounts, st.sampled_from("abc"), st.sampled_from(ContainerKind), st.dictionaries(resources, texts)
)


@hypothesis_settings(max_examples=300)
@given(st.lists(containers, max_size=4), st.integers(1, 2**40))
def test_no_amount_raises_and_every_request_is_sane(given_containers: list[ContainerAmounts], factor: int) -> None:
    got = read_request(given_containers, {}, PresetSettings(factor, factor))
    if isinstance(got, PodRequest):
        for request in got.containers:
            assert request.number >= 1
            assert 0 <= request.card.cores <= 100
            assert request.card.memory_mib is None or request.card.memory_percent is None
            assert 1 <= (request.card.memory_percent or 1) <= 100
            assert 1 <= (request.card.memory_mib or 1) <= MAX_CARD_MEMORY_MIB
    elif got is not None:
        assert len(got.message) < 600
