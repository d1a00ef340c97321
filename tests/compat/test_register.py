"""Register annotations: forms that no plugin writes are refused whole, and nothing raises."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vgpu import names
from vgpu.compat import Register, RegisteredCard, read_registers
from vgpu.core.facts import AssignmentSource, CardMode
from vgpu.core.presets import PresetSettings
from vgpu.core.reasons import Refusal


def only(key: str, text: str) -> Register | Refusal:
    (read,) = read_registers({key: text}, {})
    return read


def test_a_node_without_annotations_publishes_nothing() -> None:
    assert read_registers({}, {"cpu": "4"}) == ()


@pytest.mark.parametrize("key", [names.VOLCANO_REGISTER, names.HAMI_REGISTER])
@pytest.mark.parametrize("text", ["", "no devices"])
def test_a_value_without_a_colon_means_no_cards(key: str, text: str) -> None:
    read = only(key, text)
    assert isinstance(read, Register)
    assert read.cards == ()


def test_systems_side_by_side_are_read_apart() -> None:
    registers = read_registers(
        {names.VOLCANO_REGISTER: "GPU-a,1,5,NVIDIA-T,true,hami-core:", names.HAMI_REGISTER: "[{]"},
        {names.VOLCANO_DP_NUMBER: "1", names.VOLCANO_DP_MEMORY: "10"},
        PresetSettings(volcano_memory_factor=2),
    )
    assert isinstance(registers[0], Refusal)
    assert registers[1:] == (
        Register(AssignmentSource.VOLCANO, (RegisteredCard("GPU-a", "T", 10, 100, 1, healthy=True),)),
        Register(AssignmentSource.VOLCANO_DP, (RegisteredCard("index:0", "", 20, 100, 1, healthy=True, index=0),)),
    )


@pytest.mark.parametrize(
    ("key", "text", "want"),
    [
        (names.VOLCANO_REGISTER, "GPU-a,1,5,T,true:GPU-b,1,5,T,true,mig:", "expected 5 or 6 in every entry"),
        (names.VOLCANO_REGISTER, "GPU-a,1,5,T,true:GPU-b,1,5,T,true", "cut off"),
        (names.VOLCANO_REGISTER, "GPU-a,1,5,T,Healthy:", "health 'Healthy' is neither true nor false"),
        (names.VOLCANO_REGISTER, "GPU-a,1,5,T,true:GPU-a,1,5,T,true:", "names a card twice"),
        (names.VOLCANO_REGISTER, "GPU-a,1,5,T,true,mps:", "mode 'mps' is not known"),
        (names.VOLCANO_REGISTER, "GPU-a,1,-5,T,true:", "memory '-5' is not a whole number"),
        (names.VOLCANO_REGISTER, ",1,5,T,true:", "'' is not a card's UUID"),
        (names.HAMI_REGISTER, "GPU-a,1,5,100,T,0,true,0:", "has 8 fields, expected 7 or 9"),
        (names.HAMI_REGISTER, "[" * 100_000, "is not JSON"),
        (names.HAMI_REGISTER, "[1]", "an entry of the list is not an object"),
        (names.HAMI_REGISTER, "[{}]", "is not a card's UUID"),
        (names.HAMI_REGISTER, '[{"id":"GPU-a","devmem":1.5}]', "devmem is not a whole number"),
        (names.HAMI_REGISTER, '[{"id":"GPU-a","count":true}]', "count is not a whole number"),
        (names.HAMI_REGISTER, '[{"id":"GPU-a","health":"true"}]', "health is neither true nor false"),
        (names.HAMI_REGISTER, '[{"id":7}]', "id is not printable text"),
        (names.HAMI_REGISTER, '[{"id":"GPU-a","type":"\\ud800"}]', "type is not printable text"),
        (names.HAMI_REGISTER, " " * 10 + "x" * 300_000, "is longer than"),
    ],
)
def test_a_form_that_no_plugin_writes_is_refused_with_its_field(key: str, text: str, want: str) -> None:
    read = only(key, text)
    assert isinstance(read, Refusal)
    assert read.message.startswith(f"annotation {key}: ")
    assert want in read.message
    assert len(read.message) < 400


def test_a_missing_numa_of_minus_one_is_not_a_numa_node() -> None:
    for text in ("GPU-a,1,5,100,T,-1,true:", '[{"id":"GPU-a","numa":-1}]'):
        read = only(names.HAMI_REGISTER, text)
        assert isinstance(read, Register)
        assert read.cards[0].numa_node is None


@pytest.mark.parametrize(
    ("capacity", "unhealthy", "want"),
    [
        ({names.VOLCANO_DP_NUMBER: "-1"}, "", "is negative"),
        ({names.VOLCANO_DP_NUMBER: "1M"}, "", "1000000 cards on one node"),
        ({names.VOLCANO_DP_NUMBER: "2", names.VOLCANO_DP_MEMORY: "x"}, "", names.VOLCANO_DP_MEMORY),
        ({names.VOLCANO_DP_NUMBER: "2"}, "one", names.VOLCANO_DP_UNHEALTHY),
    ],
)
def test_an_odd_capacity_of_volcano_dp_is_refused(capacity: dict[str, str], unhealthy: str, want: str) -> None:
    (read,) = read_registers({names.VOLCANO_DP_UNHEALTHY: unhealthy}, capacity)
    assert isinstance(read, Refusal)
    assert want in read.message


counts = st.integers(0, 2**53)
cards = st.builds(
    RegisteredCard,
    uuid=st.text("abcdef0123456789-", min_size=1, max_size=8).map("GPU-".__add__),
    model=st.text("ABC 0123-", max_size=8),
    memory_mib=counts,
    cores=counts,
    slots=counts,
    healthy=st.booleans(),
    index=counts,
    numa_node=counts,
    mode=st.sampled_from(CardMode),
)
MODES = {CardMode.SHARED: "hami-core", CardMode.MIG: "mig"}


@settings(max_examples=200)
@given(st.lists(cards, max_size=4, unique_by=lambda card: card.uuid))
def test_hamis_csv_and_json_of_the_same_cards_read_alike(want: list[RegisteredCard]) -> None:
    csv = "".join(
        f"{c.uuid},{c.slots},{c.memory_mib},{c.cores},NVIDIA-{c.model},{c.numa_node},{str(c.healthy).lower()},"
        f"{c.index},{MODES[c.mode]}:"
        for c in want
    )
    keys = [
        {"id": c.uuid, "index": c.index, "count": c.slots, "devmem": c.memory_mib, "devcore": c.cores,
         "type": f"NVIDIA-{c.model}", "numa": c.numa_node, "mode": MODES[c.mode], "health": c.healthy}
        for c in want
    ]  # fmt: skip
    omit_empty = [{key: value for key, value in item.items() if value not in (0, "")} for item in keys]
    for text in (csv, json.dumps(keys), json.dumps(omit_empty)):
        assert only(names.HAMI_REGISTER, text) == Register(AssignmentSource.HAMI, tuple(want))


@settings(max_examples=200)
@given(
    st.sampled_from([names.HAMI_REGISTER, names.VOLCANO_REGISTER]),
    st.one_of(
        st.text(max_size=40),
        st.lists(st.sampled_from(["GPU-a", "1", "true", ",", ":", "mig", "-"]), max_size=20).map("".join),
        st.lists(
            st.dictionaries(st.sampled_from(["id", "count", "numa", "health", "mode"]), st.none() | st.integers()),
            max_size=2,
        ).map(json.dumps),
    ),
)
def test_no_text_raises(key: str, text: str) -> None:
    assert isinstance(only(key, text), Register | Refusal)
