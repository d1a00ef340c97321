"""A plain list and watch for observers: every event of one collection, one after the other, from any thread.

Enters: a kubeconfig and a collection's path. Leaves: (type, object) pairs; after a gap, RELISTED and all anew.
It shares no code with the product that it observes.
"""

import http.client
import json
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from devcluster.kubeconfig import read_kubeconfig

TIMEOUT_SECONDS = 5.0
RETRY_SECONDS = 0.1
RELISTED = "RELISTED"
Event = tuple[str, dict[str, Any]]


class Observer:
    """Lists, then watches, until `stop` is set; an API server that goes away is waited for."""

    def __init__(self, kubeconfig: Path, path: str) -> None:
        self._access = read_kubeconfig(kubeconfig)
        self._path = path
        self.stop = threading.Event()

    def events(self) -> Iterator[Event]:
        """RELISTED, then ADDED for each object, then what the watch says; from the start after each gap."""
        while not self.stop.is_set():
            try:
                yield from self._pass()
            except (OSError, http.client.HTTPException, _Unanswered):
                # The API server is being restarted, or a line was cut short: list again.
                self.stop.wait(RETRY_SECONDS)

    def _pass(self) -> Iterator[Event]:
        with self._request({}) as response:
            answer = _decode(response.read())
        yield RELISTED, {}
        for item in answer["items"]:
            yield "ADDED", item
        version = str(answer["metadata"]["resourceVersion"])
        while not self.stop.is_set() and version:
            version = yield from self._watch(version)

    def _watch(self, version: str) -> Generator[Event, None, str]:
        """One watch; gives the version from which the next one goes on, "" when that is not possible."""
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "4",
        }
        with self._request(query) as response:
            while not self.stop.is_set() and (line := response.readline()):
                event = _decode(line)
                if event["type"] == "ERROR":
                    return ""
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    yield event["type"], event["object"]
        return version

    @contextmanager
    def _request(self, query: dict[str, str]) -> Iterator[http.client.HTTPResponse]:
        url = urlsplit(self._access.server)
        connection = http.client.HTTPSConnection(
            url.hostname or "", url.port, timeout=TIMEOUT_SECONDS, context=self._access.tls
        )
        try:
            headers = {"Authorization": f"Bearer {self._access.token}", "User-Agent": "observer"}
            connection.request("GET", f"{self._path}?{urlencode(query)}", headers=headers)
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise _Unanswered(f"{response.status} {response.read()[:200]!r}")
            yield response
        finally:
            connection.close()


class _Unanswered(Exception):
    """The API server refused, or stopped in the middle of an answer."""


def _decode(text: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise _Unanswered(str(error)) from error
    return found
