"""crds/ is what the models say, and each kind is shown as promised."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from vgpu.api.crd import KINDS, Kind, definition, files, main

CRDS = Path(__file__).resolve().parents[2] / "crds"


def schema_of(kind: Kind) -> dict[str, Any]:
    """The structural schema of `kind`."""
    schema: dict[str, Any] = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def test_the_files_are_not_stale() -> None:
    """`make crds` mends it."""
    assert {path.name: path.read_text() for path in CRDS.iterdir()} == files()


def test_a_changed_model_makes_the_files_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([str(tmp_path)]) == 0
    monkeypatch.setattr("vgpu.api.crd.KINDS", KINDS[:2])
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} != files()


def test_the_folder_must_be_named() -> None:
    assert main([]) == 2


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_every_property_has_a_type(kind: Kind) -> None:
    """The API server refuses a field without one; unknown keywords would be dropped without a word."""

    def check(schema: dict[str, Any], path: str) -> None:
        assert "type" in schema or schema.get("x-kubernetes-int-or-string"), path
        assert not {"$ref", "$defs", "title", "default", "const"} & schema.keys(), path
        for name, child in schema.get("properties", {}).items():
            check(child, f"{path}.{name}")
        if "items" in schema:
            check(schema["items"], f"{path}[]")

    check(schema_of(kind), kind.kind)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_kubectl_explain_says_what_each_field_is(kind: Kind) -> None:
    def undescribed(schema: dict[str, Any], path: str) -> list[str]:
        found = [] if schema.get("description") else [path]
        for name, child in schema.get("properties", {}).items():
            found += undescribed(child, f"{path}.{name}")
        items = schema.get("items", {})
        return found + (undescribed(items, f"{path}[]") if "properties" in items else [])

    of_kubernetes = {f"{kind.kind}.{name}" for name in ("apiVersion", "kind", "metadata")}
    assert set(undescribed(schema_of(kind), kind.kind)) == of_kubernetes


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_no_refusal_is_a_bare_regular_expression(kind: Kind) -> None:
    """The API server answers a pattern with the pattern; a rule has a message."""
    assert "pattern" not in json.dumps(schema_of(kind))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_every_kind_has_a_status_subresource_and_its_age(kind: Kind) -> None:
    version = definition(kind)["spec"]["versions"][0]
    assert version["subresources"] == {"status": {}}
    assert "Age" in [column["name"] for column in version["additionalPrinterColumns"]]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_every_column_shows_a_field_that_there_is(kind: Kind) -> None:
    """kubectl shows nothing at all where a path leads nowhere."""
    for column in definition(kind)["spec"]["versions"][0]["additionalPrinterColumns"]:
        schema, path = schema_of(kind), re.sub(r"\[\?\(.*\)\]", ".[]", column["jsonPath"])
        for part in path.removeprefix(".").split("."):
            if path.startswith(".metadata"):
                break
            schema = schema["items"] if part == "[]" else schema["properties"][part]
        else:
            assert schema.get("type", "string") == column["type"], column  # a quantity has none


def test_a_plan_shows_its_nodes_and_whether_its_gang_is_bound_in_part() -> None:
    columns = {column.name: column for column in KINDS[2].columns}
    assert (columns["Nodes"].path, columns["Nodes"].priority) == (".spec.nodeNames", 1)
    assert columns["Partial"].path == '.status.conditions[?(@.type=="Partial")].status'
    assert columns["Why partial"].path == '.status.conditions[?(@.type=="Partial")].message'
    assert [name for name, column in columns.items() if not column.priority] == [
        "Owner", "Phase", "Victims", "Rule", "Partial", "Age",
    ]  # fmt: skip


def test_health_is_required_on_every_card() -> None:
    cards = schema_of(KINDS[0])["properties"]["spec"]["properties"]["gpus"]
    assert "health" in cards["items"]["required"]
    assert cards["x-kubernetes-list-map-keys"] == ["uuid"]


def test_the_texts_are_yaml_without_anchors() -> None:
    for text in files().values():
        assert yaml.safe_load(text)["kind"] == "CustomResourceDefinition"
        assert "&id" not in text
