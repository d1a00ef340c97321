"""What fixtures ask of etcd itself, by its JSON gateway."""

import base64
import http.client
import json
from typing import Any

TIMEOUT_SECONDS = 30.0
MARK = b"/devcluster/compacted"  # outside what the API server reads


def compact(port: int) -> int:
    """Compact etcd on this loopback port to its current revision and hand the revision back.

    A write of our own comes first: a watch that has missed exactly the newest event would get that event without
    the value before it, which the API server reports as an error 500 instead of 410.
    """
    written = _call(port, "/v3/kv/put", {"key": _encode(MARK), "value": _encode(b"")})
    revision = int(written["header"]["revision"])
    _call(port, "/v3/kv/compaction", {"revision": revision, "physical": True})
    return revision


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _call(port: int, path: str, body: dict[str, Any]) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("POST", path, json.dumps(body))
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise ConnectionError(f"etcd answered {response.status} to {path}: {content.decode(errors='replace')}")
    answer: dict[str, Any] = json.loads(content)
    return answer
