"""Cuts what the API server sends for lists and watches into the raw bytes of single objects.

Enters: the body of a list, a line of a watch. Leaves: the same bytes in pieces, without having parsed the objects:
their decoder parses each once, partially. May not live here: what an object means, requests.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import from_json, to_json

from vgpu.errors import MalformedObject
from vgpu.kube.objects import Key

_EVENT = re.compile(rb'\{"type":"([A-Z]+)","object":')
_ITEMS = b'"items":['
_ITEM_START = re.compile(rb'\{(?:"apiVersion":"[^"]*","kind":"[^"]*",)?"metadata":\{')


class _ListMeta(BaseModel):
    resource_version: str = Field("", alias="resourceVersion")
    next_page: str = Field("", alias="continue")


class _Envelope(BaseModel):
    metadata: _ListMeta
    items: list[object] | None = None


class _ObjectMeta(BaseModel):
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = Field("", alias="resourceVersion")


class _AnyObject(BaseModel):
    metadata: _ObjectMeta = _ObjectMeta.model_construct()


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list. `items` are the raw objects, `next_page` the token of the following page or ""."""

    resource_version: str
    next_page: str
    items: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and the raw object."""

    kind: str
    raw: bytes


def split_event(line: bytes) -> WatchEvent:
    """Cut one line of a watch. Raises MalformedObject."""
    match = _EVENT.match(line)
    if match and line.endswith(b"}"):
        return WatchEvent(match[1].decode(), line[match.end() : -1])
    try:
        event = from_json(line)
        return WatchEvent(str(event["type"]), to_json(event["object"]))
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedObject(f"not a watch event: {line[:200]!r}") from error


def split_page(body: bytes) -> Page:
    """Cut a list at the borders of its items, without parsing them. Raises MalformedObject.

    A border is "},{" followed by exactly what the first item starts with, up to its metadata. JSON escapes quotes
    inside strings, so no string can hold one; an inner list of objects that carry metadata could. Such a wrong cut
    leaves pieces that are not JSON: whoever finds one calls `split_page_slowly`.
    """
    start = body.find(_ITEMS) + len(_ITEMS)
    end = body.rfind(b"]")
    first = _ITEM_START.match(body, start)
    if start < len(_ITEMS) or end < start or first is None:
        return split_page_slowly(body)
    try:
        envelope = _Envelope.model_validate_json(body[:start] + body[end:])
    except ValidationError:
        return split_page_slowly(body)
    head = first[0]
    items = [head + piece for piece in body[start + len(head) : end].split(b"}," + head)]
    items[:-1] = [item + b"}" for item in items[:-1]]
    return Page(envelope.metadata.resource_version, envelope.metadata.next_page, items)


def split_page_slowly(body: bytes) -> Page:
    """Parse the whole list and write each item anew. Raises MalformedObject."""
    try:
        envelope = _Envelope.model_validate_json(body)
    except ValidationError as error:
        raise MalformedObject(f"not a list of the API server: {body[:200]!r}") from error
    items = [to_json(item) for item in envelope.items or ()]
    return Page(envelope.metadata.resource_version, envelope.metadata.next_page, items)


def is_json(raw: bytes) -> bool:
    """Whether these bytes are one whole JSON text."""
    try:
        from_json(raw)
    except ValueError:
        return False
    return True


def identify(raw: bytes) -> tuple[Key, str]:
    """Whose object this is and at which version, whatever else it holds; empty texts for what is missing."""
    try:
        meta = _AnyObject.model_validate_json(raw).metadata
    except ValidationError:
        return Key("", "", ""), ""
    return Key(meta.namespace, meta.name, meta.uid), meta.resource_version


def is_older(version: str, than: str) -> bool:
    """Whether a resourceVersion lies before another; versions that are not numbers are never older."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
