"""Which reason code each waiting pod was told, and when: whoever tells it, the same code at most once in a while.

Enters: codes that a reporter is about to tell, or could not. Leaves: from when on a code may be told again. All
who write events about waiting pods share one. May not live here: what is told, writes.
"""

from collections.abc import Collection

NEVER = float("-inf")


class ToldCodes:
    """See the module. Pods are meant by their uids; times are of one clock, the event loop's."""

    def __init__(self, repeat_seconds: float) -> None:
        self._repeat_seconds = repeat_seconds
        self._at: dict[str, dict[str, float]] = {}

    def again_at(self, uid: str, code: str) -> float:
        """From when on the pod may be told this code; long ago for one that it was not told."""
        return self._at.get(uid, {}).get(code, NEVER) + self._repeat_seconds

    def was_told(self, uid: str, code: str) -> bool:
        """Whether anybody has told the pod this code."""
        return code in self._at.get(uid, ())

    def tell(self, uid: str, code: str, now: float) -> float | None:
        """The pod is told this code now; to be called before the write, so that nobody else tells it meanwhile.
        Gives when it was told before, for `failed`."""
        codes = self._at.setdefault(uid, {})
        before = codes.get(code)
        codes[code] = now
        return before

    def failed(self, uid: str, code: str, before: float | None) -> None:
        """It could not be told: only what was told before counts."""
        codes = self._at.get(uid, {})
        if before is None:
            codes.pop(code, None)
        elif code in codes:
            codes[code] = before

    def keep_only(self, uids: Collection[str]) -> None:
        """Only these pods wait still."""
        for uid in self._at.keys() - set(uids):
            del self._at[uid]
