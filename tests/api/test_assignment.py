"""The assignment annotation: exact text out, exact faults named on the way in."""

import json
from typing import Any

import pytest

from vgpu.api.assignment import ASSIGNMENT_LIMIT_BYTES, assignment_of, parse_assignment
from vgpu.core.facts import AssignedCard, AssignedContainer
from vgpu.core.request import ContainerKind
from vgpu.errors import MalformedObject

NONCE = "0123456789abcdef"
WANT_TEXT = (
    '{"v":1,"podUid":"uid-1","node":"node-1","nonce":"0123456789abcdef","containers":'
    '[{"name":"main","cards":[{"uuid":"GPU-1","memoryMiB":1000,"cores":30,"whole":false}]}]}'
)


def make_document(**changes: Any) -> dict[str, Any]:
    """The document of WANT_TEXT with `changes` at its top level."""
    return {**json.loads(WANT_TEXT), **changes}


def make_containers(**changes: Any) -> list[dict[str, Any]]:
    """One container whose one card has `changes`."""
    card = {"uuid": "GPU-1", "memoryMiB": 1000, "cores": 30, "whole": False, **changes}
    return [{"name": "main", "cards": [card]}]


def test_encoding_is_the_contracts_text() -> None:
    container = AssignedContainer("main", ContainerKind.APP, (AssignedCard("GPU-1", 1000, 30, False),))
    model = assignment_of(pod_uid="uid-1", node="node-1", nonce=NONCE, containers=[container])
    assert model.encode() == WANT_TEXT


def test_reading_gives_back_what_was_written() -> None:
    model = parse_assignment(WANT_TEXT)
    assert model.encode() == WANT_TEXT
    assert model.containers[0].cards[0].memory_mib == 1000


def test_unknown_fields_do_not_break_reading() -> None:
    document = make_document(later={"x": 1}, containers=make_containers(hint="y"))
    assert parse_assignment(json.dumps(document)).encode() == WANT_TEXT


TWO_SAME = [make_containers()[0], make_containers()[0]]
SAME_CARD_TWICE = [{"name": "main", "cards": [make_containers()[0]["cards"][0]] * 2}]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", "document: Invalid JSON"),
        ("[" * 5000, "document: Invalid JSON"),
        ("[]", "document: Input should be an object"),
        ("null", "document: Input should be an object"),
        ("{}", "v: Field required"),
        (json.dumps(make_document(v=2)), "v: Input should be 1"),
        (json.dumps(make_document(podUid="")), "podUid: "),
        (json.dumps(make_document(podUid=7)), "podUid: "),
        (json.dumps(make_document(nonce="XYZ")), "nonce: "),
        (json.dumps(make_document(node=None)), "node: "),
        (json.dumps(make_document(containers=[])), "containers: "),
        (json.dumps(make_document(containers=[{"name": "main", "cards": []}])), "containers[0].cards: "),
        (json.dumps(make_document(containers=TWO_SAME)), "the container main is named twice"),
        (json.dumps(make_document(containers=SAME_CARD_TWICE)), "the card GPU-1 is named twice"),
        (json.dumps(make_document(containers=make_containers(memoryMiB=0))), "cards[0].memoryMiB: "),
        (json.dumps(make_document(containers=make_containers(memoryMiB=-5))), "cards[0].memoryMiB: "),
        (json.dumps(make_document(containers=make_containers(memoryMiB=10**30))), "cards[0].memoryMiB: "),
        (json.dumps(make_document(containers=make_containers(memoryMiB=1.5))), "cards[0].memoryMiB: "),
        (json.dumps(make_document(containers=make_containers(memoryMiB="1000"))), "cards[0].memoryMiB: "),
        (json.dumps(make_document(containers=make_containers(memoryMiB=float("nan")))), "cards[0].memoryMiB: "),
        (json.dumps(make_document(containers=make_containers(cores=101))), "cards[0].cores: "),
        (json.dumps(make_document(containers=make_containers(cores=True))), "cards[0].cores: "),
        (json.dumps(make_document(containers=make_containers(whole="no"))), "cards[0].whole: "),
        (json.dumps(make_document(containers=make_containers(uuid=""))), "cards[0].uuid: "),
        ("x" * (ASSIGNMENT_LIMIT_BYTES + 1), "at most 262144 fit"),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_a_wrong_field_is_named(text: str, want: str) -> None:
    with pytest.raises(MalformedObject) as refused:
        parse_assignment(text)
    assert str(refused.value).startswith("vgpu.dev/assignment: ")
    assert want in str(refused.value)


def test_an_assignment_longer_than_an_object_may_carry_is_not_encoded() -> None:
    cards = tuple(AssignedCard(f"GPU-{n:064}", 1, 0, False) for n in range(3000))
    model = assignment_of(
        pod_uid="u", node="n", nonce=NONCE, containers=[AssignedContainer("main", ContainerKind.APP, cards)]
    )
    with pytest.raises(MalformedObject, match="at most 262144 fit"):
        model.encode()


def test_an_assignment_without_cards_cannot_be_made() -> None:
    with pytest.raises(MalformedObject, match="containers"):
        assignment_of(pod_uid="u", node="n", nonce=NONCE, containers=[])
