"""The one place where an unexpected exception about one object is caught, so that a loop goes on with the others.

Enters: the loop's part, the object's name, a block that is about that object alone. Leaves: the exception in the
log, once per object and fault, and a count per part for /metrics. May not live here: expected failures (each
caller names those it handles), and what is about no single object: that ends its task, which readiness shows.
"""

import logging
from collections import Counter, OrderedDict
from types import TracebackType

LOG = logging.getLogger(__name__)
REMEMBERED = 1000
"""Faults that are remembered as told; the oldest goes first."""

unexpected_errors: Counter[str] = Counter()
"""How often each part of this process has met an exception that nobody foresaw."""

_told: OrderedDict[tuple[str, str], str] = OrderedDict()


class one_object:  # noqa: N801  (a context manager reads as a verb)
    """`with one_object(part, name) as attempt:` survives any Exception of its block; `attempt.failed` says so.

    Cancellation passes through. The object should be looked at again at its next change, never at once.
    """

    def __init__(self, part: str, name: str) -> None:
        self.failed = False
        self._part = part
        self._name = name

    def __enter__(self) -> "one_object":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None:
            _told.pop((self._part, self._name), None)
            return False
        if not isinstance(error, Exception):
            return False
        self.failed = True
        unexpected_errors[self._part] += 1
        fault = f"{type(error).__name__}: {error}"
        if _told.get((self._part, self._name)) != fault:
            LOG.error("unexpected error part=%s object=%s", self._part, self._name, exc_info=error)
        _remember((self._part, self._name), fault)
        return True


def _remember(key: tuple[str, str], fault: str) -> None:
    _told[key] = fault
    _told.move_to_end(key)
    while len(_told) > REMEMBERED:
        _told.popitem(last=False)
