"""Turns a pydantic model's JSON schema into a structural schema, the kind that a CRD may carry.

A model class enters, a plain document leaves. References are put in place, "or null" is dropped (absent says
the same), and what Kubernetes does not know is left out. No field of any kind may be named here.
"""

from typing import Any

from pydantic import BaseModel

_KEPT = frozenset(
    {"type", "format", "description", "enum", "minimum", "maximum", "minLength", "maxLength", "pattern"}
    | {"minItems", "maxItems", "required", "properties", "items", "anyOf"}
)
Schema = dict[str, Any]


def structural_schema(model: type[BaseModel]) -> Schema:
    """The structural schema of `model`, by wire names."""
    document = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(document, document.get("$defs", {}))


def _convert(node: Schema, definitions: dict[str, Schema]) -> Schema:
    node = _in_place(_without_null(_in_place(node, definitions)), definitions)
    if node.get("x-kubernetes-int-or-string"):
        # The mark says which types there are; an anyOf would only make three lines of each refusal's one.
        node = {key: value for key, value in node.items() if key not in ("type", "pattern", "anyOf")}
    if "const" in node:
        node = {**node, "enum": [node["const"]]}
    schema: Schema = {}
    for key, value in node.items():
        if key == "properties":
            schema[key] = {name: _convert(child, definitions) for name, child in value.items()}
        elif key == "items":
            schema[key] = _convert(value, definitions)
        elif key == "description":
            schema[key] = " ".join(value.split())
        elif key in _KEPT or key.startswith("x-kubernetes-"):
            schema[key] = value
    if schema.get("type") == "integer":
        schema["format"] = "int64"
    return schema


def _in_place(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """`node` with its reference, if it has one, replaced by what it names; the node's own keys win."""
    if "$ref" not in node:
        return node
    name = node["$ref"].removeprefix("#/$defs/")
    own = {key: value for key, value in node.items() if key != "$ref"}
    return {**definitions[name], **own}


def _without_null(node: Schema) -> Schema:
    """`node` without the alternative "null" that an optional field has in pydantic's schema."""
    choices = [choice for choice in node.get("anyOf", ()) if choice.get("type") != "null"]
    if len(choices) != 1:
        return node
    own = {key: value for key, value in node.items() if key != "anyOf"}
    return {**choices[0], **own}
