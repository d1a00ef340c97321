"""Turns raw objects into calls of a Sink, and knows which objects exist so that nothing lost goes unnoticed.

Enters: raw objects of lists and watches. Leaves: put, drop, malformed, synced. A name is one object at a time:
when it comes back with another uid the old one is dropped first; the deletion of an old uid never drops a newer.
May not live here: requests, waiting, what an object means.
"""

import logging
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from vgpu.errors import MalformedObject
from vgpu.kube.objects import Decoded, Key
from vgpu.kube.wire import WatchEvent, identify, is_json

logger = logging.getLogger(__name__)

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class NotJson(Exception):
    """These bytes are no JSON text at all: not a bad object, but a wrong cut or a broken stream."""


class Sink(Protocol[T_contra]):
    """Where facts go. Called in the event loop, synchronously; must not raise for a bad object."""

    def put(self, item: T_contra) -> None:
        """This object is there now, like this."""

    def drop(self, key: Key) -> None:
        """This object is gone. It may never have been put, if it was malformed from the start."""

    def malformed(self, key: Key, message: str) -> None:
        """This object is there and cannot be read; what was put of it before is not taken back."""

    def synced(self) -> None:
        """A complete list has just been folded, drops included: the first one, and each later one."""


class Store(Generic[T]):
    """The identity (not the content) of every object that exists, and the way to the sink."""

    def __init__(self, decode: Callable[[bytes], Decoded[T]], sink: Sink[T]) -> None:
        self._decode = decode
        self._sink = sink
        self._uids: dict[tuple[str, str], str] = {}
        self._seen: set[str] | None = None
        self.malformed_objects = 0

    def __len__(self) -> int:
        return len(self._uids)

    def begin_list(self) -> None:
        """From now on remember what is listed; a list begun before and never ended counts for nothing."""
        self._seen = set()

    def unseen(self) -> list[Key]:
        """What the list that just ended did not hold: the caller drops each, in turns, and then ends the list."""
        seen = self._seen if self._seen is not None else set()
        return [Key(*name, uid) for name, uid in self._uids.items() if uid not in seen]

    def end_list(self) -> None:
        """The list is folded, drops included: tell the sink that it is in step."""
        self._seen = None
        self._guard(Key("", "", ""), self._sink.synced)

    def drop(self, key: Key) -> None:
        """This object is gone; a newer one of the same name is left alone."""
        if self._uids.get((key.namespace, key.name)) == key.uid:
            self._drop(key)

    def fold_event(self, event: WatchEvent) -> str:
        """Fold ADDED, MODIFIED or DELETED; gives the object's resourceVersion. Raises NotJson only."""
        if event.kind != "DELETED":
            return self.fold_object(event.raw)
        key, version = identify(event.raw)
        if not key.uid:
            raise NotJson(f"a deletion without a uid: {event.raw[:200]!r}")
        self.drop(key)
        return version

    def fold_object(self, raw: bytes) -> str:
        """Fold an object that exists; gives its resourceVersion ("" when it has none). Raises NotJson only."""
        try:
            decoded = self._decode(raw)
        except MalformedObject as error:
            return self._quarantine(raw, str(error))
        except Exception as error:  # one object must never stop the stream, whatever its decoder does
            logger.exception("an object could not be decoded")
            return self._quarantine(raw, f"{type(error).__name__}: {error}")
        self._register(decoded.key)
        self._guard(decoded.key, lambda: self._sink.put(decoded.fact))
        return decoded.resource_version

    def _quarantine(self, raw: bytes, message: str) -> str:
        if not is_json(raw):
            raise NotJson(f"{message}: {raw[:200]!r}")
        key, version = identify(raw)
        self.malformed_objects += 1
        if key.uid:
            self._register(key)
        self._tell_malformed(key, message)
        return version

    def _register(self, key: Key) -> None:
        name = (key.namespace, key.name)
        known = self._uids.get(name)
        if known != key.uid:
            if known is not None:
                self._drop(Key(*name, known))
            self._uids[name] = key.uid
        if self._seen is not None:
            self._seen.add(key.uid)

    def _drop(self, key: Key) -> None:
        del self._uids[key.namespace, key.name]
        self._guard(key, lambda: self._sink.drop(key))

    def _guard(self, key: Key, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # a bug behind one object must not stop the others' facts
            logger.exception("a fact could not be folded namespace=%s name=%s", key.namespace, key.name)
            self._tell_malformed(key, f"{type(error).__name__}: {error}")

    def _tell_malformed(self, key: Key, message: str) -> None:
        try:
            self._sink.malformed(key, message)
        except Exception:
            logger.exception("a malformed object could not be reported name=%s", key.name)
