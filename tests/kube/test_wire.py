"""Cutting lists and watch lines without parsing their objects."""

import json

import pytest

from vgpu.errors import MalformedObject
from vgpu.kube.objects import Key
from vgpu.kube.wire import identify, is_json, is_older, split_event, split_page, split_page_slowly

NASTY = 'brackets ]} and "},{"metadata":{" in a string'


def typed_list(items: list[dict[str, object]], token: str = "") -> bytes:
    """As the API server writes built-in kinds: metadata before items."""
    meta = {"resourceVersion": "7", "continue": token}
    return (
        json.dumps(
            {"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": items}, separators=(",", ":")
        )
        + "\n"
    ).encode()


def custom_list(items: list[dict[str, object]]) -> bytes:
    """As it writes custom kinds: keys sorted, metadata after items."""
    body = {
        "apiVersion": "g/v1",
        "items": items,
        "kind": "ThingList",
        "metadata": {"continue": "t", "resourceVersion": "7"},
    }
    return json.dumps(body, separators=(",", ":")).encode()


def typed(name: str, **more: object) -> dict[str, object]:
    return {"metadata": {"name": name, "labels": {"x": NASTY}}, **more}


def custom(name: str) -> dict[str, object]:
    fields = [{"apiVersion": "g/v1", "fieldsType": "V1"}, {"apiVersion": "g/v1", "fieldsType": "V1"}]
    return {
        "apiVersion": "g/v1",
        "kind": "Thing",
        "metadata": {"managedFields": fields, "name": name},
        "spec": {"a": [[1]]},
    }


TEMPLATES = [{"metadata": {"name": "t1"}}, {"metadata": {"name": "t2"}}]


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param(typed_list([]), [], id="empty"),
        pytest.param(typed_list([typed("a")]), [typed("a")], id="one"),
        pytest.param(
            typed_list([typed("a"), typed("b", spec={"l": [1]})], "t"),
            [typed("a"), typed("b", spec={"l": [1]})],
            id="typed",
        ),
        pytest.param(custom_list([custom("a"), custom("b")]), [custom("a"), custom("b")], id="custom"),
        pytest.param(
            json.dumps({"metadata": {"resourceVersion": "7"}, "items": [typed("a")]}, indent=1).encode(),
            [typed("a")],
            id="pretty",
        ),
        pytest.param(b'{"metadata":{"resourceVersion":"7"},"items":null}', [], id="null"),
    ],
)
def test_page_is_cut_into_its_items(body: bytes, want: list[dict[str, object]]) -> None:
    page = split_page(body)
    assert [json.loads(raw) for raw in page.items] == want
    assert page.resource_version == "7"
    assert page.next_page == (json.loads(body)["metadata"].get("continue", ""))


def test_wrong_cut_leaves_no_json_and_the_slow_way_is_right() -> None:
    """An inner list of objects with metadata looks like a border."""
    items = [typed("a", spec={"templates": TEMPLATES}), typed("b")]
    body = typed_list(items)
    assert not all(is_json(raw) for raw in split_page(body).items)
    assert [json.loads(raw) for raw in split_page_slowly(body).items] == items


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b'{"items":[]}', b'{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{}'],
)
def test_what_is_no_list_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedObject):
        split_page(body)


def test_event_is_cut_without_parsing() -> None:
    event = split_event(b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}')
    assert (event.kind, event.raw) == ("ADDED", b'{"metadata":{"name":"a"}}')


def test_event_in_another_order_is_read_too() -> None:
    event = split_event(b'{ "object": {"a": 1}, "type": "DELETED" }')
    assert (event.kind, json.loads(event.raw)) == ("DELETED", {"a": 1})


@pytest.mark.parametrize("line", [b"", b"x", b"[]", b'{"type":"ADDED"}'])
def test_what_is_no_event_is_malformed(line: bytes) -> None:
    with pytest.raises(MalformedObject):
        split_event(line)


def test_objects_identity_is_read_from_anything() -> None:
    raw = b'{"metadata":{"namespace":"n","name":"a","uid":"u","resourceVersion":"5"},"spec":"nonsense"}'
    assert identify(raw) == (Key("n", "a", "u"), "5")
    assert identify(b'{"metadata":[]}') == (Key("", "", ""), "")


def test_versions_are_compared_as_numbers() -> None:
    assert is_older("9", "10")
    assert not is_older("10", "9")
    assert not is_older("abc", "10")
