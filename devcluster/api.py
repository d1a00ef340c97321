"""A small client of the Kubernetes API for fixtures: one JSON request at a time, from any thread.

Enters: method, path, body. Leaves: decoded JSON, or ApiRefused. May not live here: knowledge of any kind.
"""

import http.client
import json
import ssl
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from devcluster.errors import ApiRefused

TIMEOUT_SECONDS = 30.0
BUSY_PAUSES_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 4.0)
KEPT_SECONDS = 45.0
"""The API server closes a connection that was not used for 90 s; one that may be closed is not written to."""
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an API server is and whom its callers trust and are."""

    url: str
    tls: ssl.SSLContext
    token: str | None


class ApiClient:
    """Requests as one user. Keeps one connection per thread."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._local = threading.local()

    def get(self, path: str) -> Json:
        """Read one object or list. Raises ApiRefused."""
        return self.request("GET", path)

    def post(self, path: str, body: Json) -> Json:
        """Create. Raises ApiRefused."""
        return self.request("POST", path, body)

    def patch(self, path: str, body: Json, content_type: str = MERGE_PATCH) -> Json:
        """Patch, a merge patch unless told otherwise. Raises ApiRefused."""
        return self.request("PATCH", path, body, content_type)

    def delete(self, path: str, body: Json | None = None) -> Json:
        """Delete one object or a collection. Raises ApiRefused."""
        return self.request("DELETE", path, body)

    def request(
        self, method: str, path: str, body: Json | None = None, content_type: str = "application/json"
    ) -> Json:
        """Send one request. Raises ApiRefused for error statuses, OSError when there is no answer."""
        headers = {"Content-Type": content_type, "Accept": "application/json", "User-Agent": "devcluster"}
        if self._endpoint.token:
            headers["Authorization"] = f"Bearer {self._endpoint.token}"
        payload = json.dumps(body).encode() if body is not None else None
        for pause_seconds in (*BUSY_PAUSES_SECONDS, None):
            try:
                status, content = self._exchange(method, path, payload, headers)
            except (http.client.HTTPException, OSError) as error:
                self._forget_connection()
                if isinstance(error, OSError):
                    raise
                raise ConnectionError(f"{method} {path}: {error!r}") from error
            # Nothing was carried out: a kind that has just been defined, or a burst. Patience is the whole cure.
            if status != http.client.TOO_MANY_REQUESTS or pause_seconds is None:
                break
            time.sleep(pause_seconds)
        return _decode(status, content)

    def _exchange(
        self, method: str, path: str, payload: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        connection = self._connection()
        fresh = connection.sock is None
        try:
            connection.request(method, path, payload, headers)
            response = connection.getresponse()
        except (http.client.BadStatusLine, ConnectionResetError, BrokenPipeError):
            # A kept connection may have been closed by a server restarted meanwhile. Only a read is sent again:
            # whether the server acted on a write is unknown.
            self._forget_connection()
            if fresh or method != "GET":
                raise
            connection = self._connection()
            connection.request(method, path, payload, headers)
            response = connection.getresponse()
        return response.status, response.read()

    def _connection(self) -> http.client.HTTPSConnection:
        now = time.monotonic()
        if now - getattr(self._local, "used_at", now) > KEPT_SECONDS:
            self._forget_connection()
        self._local.used_at = now
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            url = urlsplit(self._endpoint.url)
            connection = http.client.HTTPSConnection(
                url.hostname or "", url.port or 443, timeout=TIMEOUT_SECONDS, context=self._endpoint.tls
            )
            self._local.connection = connection
        return connection

    def _forget_connection(self) -> None:
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None


def _decode(status: int, content: bytes) -> Json:
    try:
        decoded = json.loads(content)
    except ValueError:
        decoded = {"message": content.decode(errors="replace")}
    if not isinstance(decoded, dict):
        decoded = {"items": decoded}
    if status >= http.client.BAD_REQUEST:
        raise ApiRefused(status, str(decoded.get("reason", "")), str(decoded.get("message", "")))
    return decoded
