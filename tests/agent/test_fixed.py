"""Cards from a file: both forms, errors, and changes of the file."""

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from vgpu.agent.fixed import FixedSource, parse_cards
from vgpu.agent.source import CardReading, EventKind
from vgpu.core.facts import CardMode
from vgpu.errors import ConfigurationError, SourceError

LIST = """
driverVersion: "535.1"
cards:
  - {uuid: GPU-a, index: 0, minor: 1, model: A100, memoryMiB: 40960, mode: mig, numaNode: 1, nvlinkPeers: [GPU-b]}
  - {uuid: GPU-b, index: 1, model: A100, memoryMiB: 40960, problem: broken}
lost: [{index: 2, reason: gone}]
"""


async def reading(path: Path, text: str) -> CardReading:
    await asyncio.to_thread(path.write_text, text)
    found = await FixedSource(path, "n1").read()
    assert found is not None
    return found


async def test_the_list_form_says_everything_about_each_card(tmp_path: Path) -> None:
    got = await reading(tmp_path / "cards.yaml", LIST)
    first, second = got.cards
    assert (first.uuid, first.minor, first.mode, first.numa_node) == ("GPU-a", 1, CardMode.MIG, 1)
    assert (first.links, first.problem) == (frozenset({"GPU-b"}), "")
    assert second.problem == "broken"
    assert [(lost.index, lost.reason) for lost in got.lost] == [(2, "gone")]


async def test_the_count_form_gives_every_node_cards_of_its_own() -> None:
    document = parse_cards({"cards": {"count": 8, "memoryMiB": 1000}}, "x")
    first, second = document.reading("n1"), document.reading("n2")
    assert first == document.reading("n1")
    assert len({card.uuid for card in first.cards + second.cards}) == 16
    assert {card.memory_mib for card in first.cards} == {1000}


@pytest.mark.parametrize(
    "text",
    ["cards: {count: -1}", "cards: {count: 99}", "cards: [{uuid: GPU-a}]", "carts: []", "[", "readError: none"],
)
async def test_a_wrong_file_is_a_source_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(SourceError):
        await reading(tmp_path / "cards.yaml", text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5000,
        "{a: " * 5000,
        "\x00\x01",
        "cards: 2020-13-45",
        "cards: " + "1" * 5000,
        "cards: 0x" + "f" * 5000,
        "a: &a [x]\n" + "".join(f"{n}: &{n} [*{p}, *{p}, *{p}, *{p}]\n" for p, n in pairwise("abcdefghijklmnop")),
        "cards: [{uuid: 'GPU-0,GPU-1', index: 0, model: m}]",
        'cards: [{uuid: "GPU-0\\nX=1", index: 0, model: m}]',
        "cards: [{uuid: 'GPU 0', index: 0, model: m}]",
    ],
    ids=["lists", "maps", "bytes", "date", "number", "hexadecimal", "aliases", "comma", "line", "space"],
)
async def test_whatever_is_in_the_file_the_fault_is_told_in_few_words(tmp_path: Path, text: str) -> None:
    with pytest.raises(SourceError, match=r"cards.yaml: ") as caught:
        await reading(tmp_path / "cards.yaml", text)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("uuid", ["GPU-6e0a3c1c-3a0e-5d0c-9b3e-8f2f6b1d7c55", "MIG-6e0a3c1c", "MIG-GPU-6e0a/1/2"])
async def test_uuids_as_nvml_writes_them_are_cards(tmp_path: Path, uuid: str) -> None:
    got = await reading(tmp_path / "c.yaml", f"cards: [{{uuid: {uuid}, index: 0, model: m, memoryMiB: 1000}}]")
    assert [card.uuid for card in got.cards] == [uuid]


async def test_a_missing_file_is_a_source_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"absent\.yaml"):
        await FixedSource(tmp_path / "absent.yaml", "n1").read()


def test_the_wrong_key_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"nodes\.yaml: carts"):
        parse_cards({"carts": []}, "nodes.yaml")


async def test_a_change_of_the_file_is_an_event_also_right_after_a_reading(tmp_path: Path) -> None:
    path = tmp_path / "cards.yaml"
    await asyncio.to_thread(path.write_text, "cards: {count: 1}")
    source = FixedSource(path, "n1", look_seconds=0.001)
    await source.read()
    await asyncio.to_thread(path.write_text, "cards: {count: 12}")
    event = await anext(source.health_events())
    assert (event.kind, event.uuid) == (EventKind.CHANGED, None)
    got = await source.read()
    assert got is not None
    assert len(got.cards) == 12


def test_an_unknown_key_is_told_with_those_that_are_known_there() -> None:
    with pytest.raises(ConfigurationError, match=r"f: cardz: unknown key; known are bootId, cards, cudaVersion"):
        parse_cards({"cardz": []}, "f")
    with pytest.raises(ConfigurationError, match=r"modl: unknown key; known are count, memoryMiB, mode"):
        parse_cards({"cards": {"count": 1, "modl": "x"}}, "f")
