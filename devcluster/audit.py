"""The API server's audit log: what is logged, and reading it back.

Enters: the log file. Leaves: one small record per answered request. May not live here: judgement of what is found.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Every request at level Metadata, but for the probes that this package sends itself. A watch gives a record when
# it begins (ResponseStarted) and one when it ends (ResponseComplete); other requests give the latter alone.
POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "nonResourceURLs": ["/readyz*", "/livez*", "/healthz*"]},
        {"level": "Metadata"},
    ],
}


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One request. `resource` is empty outside the API; `code` is the HTTP status, 0 if none was sent.

    `uid` is that of the object that came with the request (a Binding names its pod's), "" where none came.
    """

    stage: str
    user: str
    user_agent: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    uid: str
    code: int
    uri: str
    received_at: str


@dataclass(frozen=True, slots=True)
class AuditSlice:
    """Records in the order in which they were written, and where to go on reading."""

    events: tuple[AuditEvent, ...]
    position: int


def read_audit(log: Path, since: int = 0) -> AuditSlice:
    """The complete records behind a byte position (0 is the start; a later one comes from an earlier slice)."""
    if not log.exists():
        return AuditSlice((), since)
    with log.open("rb") as handle:
        handle.seek(since)
        content = handle.read()
    complete, newline, _ = content.rpartition(b"\n")
    lines = complete.splitlines() if newline else []
    return AuditSlice(tuple(_parse(lines)), since + len(complete) + len(newline))


def _parse(lines: Iterable[bytes]) -> Iterable[AuditEvent]:
    for line in lines:
        record = json.loads(line)
        target = record.get("objectRef", {})
        yield AuditEvent(
            stage=record["stage"],
            user=record.get("user", {}).get("username", ""),
            user_agent=record.get("userAgent", ""),
            verb=record["verb"],
            resource=target.get("resource", ""),
            subresource=target.get("subresource", ""),
            namespace=target.get("namespace", ""),
            name=target.get("name", ""),
            uid=target.get("uid", ""),
            code=record.get("responseStatus", {}).get("code", 0),
            uri=record["requestURI"],
            received_at=record["requestReceivedTimestamp"],
        )
