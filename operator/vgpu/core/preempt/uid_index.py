"""Uids by what they have in common, kept as pods come and go. One key per uid; "" is no key."""

from collections.abc import Collection


class UidIndex:
    """Which uids stand under a key. Mutable, with one owner."""

    def __init__(self) -> None:
        self._key_of: dict[str, str] = {}
        self._uids: dict[str, set[str]] = {}

    def put(self, uid: str, key: str) -> None:
        """The uid stands under this key from now on, and under no other."""
        before = self._key_of.get(uid, "")
        if before == key:
            return
        self._discard(uid, before)
        if key:
            self._key_of[uid] = key
            self._uids.setdefault(key, set()).add(uid)
        else:
            self._key_of.pop(uid, None)

    def drop(self, uid: str) -> None:
        """The uid is gone."""
        self.put(uid, "")

    def of(self, key: str) -> Collection[str]:
        """The uids under the key; do not keep it."""
        return self._uids.get(key, ())

    def key(self, uid: str) -> str:
        """The uid's key, "" for none."""
        return self._key_of.get(uid, "")

    def _discard(self, uid: str, key: str) -> None:
        uids = self._uids.get(key)
        if uids is not None:
            uids.discard(uid)
            if not uids:
                del self._uids[key]
