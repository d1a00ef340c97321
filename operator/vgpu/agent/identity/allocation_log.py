"""The answers to Allocate, and whose they turned out to be, on disk before kubelet hears of them.

Slot ids enter, entries leave; grants (this pod's containers own these nonces, with this assignment) enter and
leave. A file of JSON lines that only grows, each line on disk before the call returns, rewritten whole by
`forget`, and when somebody moved, removed or cut it meanwhile. A torn last line was never answered and is cut off.
May not live here: which answer is whose.
"""

import contextlib
import json
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vgpu.agent.identity.matching import Entry, Ids
from vgpu.api.assignment import parse_assignment
from vgpu.core.request import ContainerKind
from vgpu.errors import ConfigurationError, MalformedObject

LOG = logging.getLogger(__name__)
LONGEST_RUN = 256
"""No pod has as many containers: answers further apart than this are never of one pod."""
SPARE_LINES = 500
"""So many lines may be out of date before the file is rewritten."""
VERSION = 1

Nonce = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class GrantedContainer(_Row):
    """A container that owns the answer `nonce`, and what its pod's spec says that its limits depend on."""

    nonce: Nonce
    name: str
    kind: ContainerKind = ContainerKind.APP
    control_off: bool = False
    priority: str = ""


class Grant(_Row):
    """A pod whose answers are known for certain, and the assignment by which it was first let start."""

    uid: str
    namespace: str
    name: str
    assignment: str
    containers: tuple[GrantedContainer, ...]

    @property
    def nonces(self) -> frozenset[str]:
        """All its answers."""
        return frozenset(container.nonce for container in self.containers)


class _Version(_Row):
    v: int = VERSION


class _Line(_Version):
    sequence: int = 0
    nonce: Nonce | None = None
    ids: tuple[str, ...] = ()
    grant: Grant | None = None


class AllocationLog:
    """Opens with what the file says. One process at a time.

    Raises ConfigurationError where the file cannot be used, or is of a later version.
    """

    def __init__(self, path: Path, make_nonce: Callable[[], str] = lambda: secrets.token_hex(8)) -> None:
        self._path = path
        self._make_nonce = make_nonce
        self._entries: dict[str, Entry] = {}
        self._grants: dict[str, Grant] = {}
        self._lines = 0
        self._next = 1
        try:
            self._file = self._open()
        except OSError as error:
            raise ConfigurationError(
                f"the allocation log {path} cannot be used: {error}; it is a file that only this agent writes"
            ) from error
        self._size = os.fstat(self._file).st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    @property
    def entries(self) -> Sequence[Entry]:
        """Every answer that is remembered, in the order of the calls."""
        return tuple(self._entries.values())

    @property
    def grants(self) -> Mapping[str, Grant]:
        """By pod uid."""
        return self._grants

    def answer(self, requests: Sequence[Ids]) -> list[Entry]:
        """Remember one answer for each set of ids. Raises OSError, and then none of them is remembered."""
        entries = [Entry(self._next + offset, self._make_nonce(), ids) for offset, ids in enumerate(requests)]
        self._append([_entry_line(entry) for entry in entries])
        self._entries |= {entry.nonce: entry for entry in entries}
        self._next += len(entries)
        return entries

    def leave_gap(self) -> None:
        """The next answer does not follow the last one: what came in between is not known."""
        self._next += 1

    def grant(self, grant: Grant) -> None:
        """Remember whose these answers are. Raises OSError, and then it is not remembered."""
        self._append([_grant_line(grant)])
        self._grants[grant.uid] = grant

    def granted(self, ids: Ids) -> Grant | None:
        """The pod that got exactly `ids`, if it is known and nobody was given one of them since."""
        for entry in reversed(self._entries.values()):
            if entry.ids & ids:
                grant = self._owner(entry.nonce)
                if grant is None or entry.ids == ids:
                    return grant
                newer = entry.sequence
                return self._earlier_in(grant, ids, newer)
        return None

    def forget(self, gone: Iterable[str]) -> None:
        """Forget the pods with these uids, and every answer that cannot be used any more. Raises OSError."""
        for uid in gone:
            if (grant := self._grants.pop(uid, None)) is not None:
                for nonce in grant.nonces:
                    self._entries.pop(nonce, None)
        for nonce in self._stale():
            del self._entries[nonce]
        if self._lines > len(self._entries) + len(self._grants) + SPARE_LINES:
            self.rewrite()

    def rewrite(self) -> None:
        """Write the file anew with what is remembered. Raises OSError, and then the old file stays."""
        # The last sequence is kept by an empty line of its own: a number is never given twice.
        lines = [_line({"v": VERSION, "sequence": self._next - 1})]
        lines += [_entry_line(entry) for entry in self._entries.values()]
        lines += [_grant_line(grant) for grant in self._grants.values()]
        fresh = self._path.with_suffix(".new")
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        content = b"".join(lines)
        try:
            _write_all(file, content)
            os.replace(fresh, self._path)
        except OSError:
            os.close(file)
            raise
        os.close(self._file)
        self._file, self._lines, self._size = file, len(lines), len(content)
        _sync_folder(self._path.parent)

    def _open(self) -> int:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._read(self._path.read_bytes() if self._path.exists() else b"")
        self.leave_gap()
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        _sync_folder(self._path.parent)
        return file

    def _is_in_place(self) -> bool:
        """Is the file that is written the one that the next start reads, and is all of it there?"""
        own = os.fstat(self._file)
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(own, there) and there.st_size == self._size

    def _owner(self, nonce: str) -> Grant | None:
        return next((grant for grant in self._grants.values() if nonce in grant.nonces), None)

    def _earlier_in(self, grant: Grant, ids: Ids, before: int) -> Grant | None:
        """A plain init container's answer lies before those of its own pod that gave out its slots again."""
        for entry in reversed(self._entries.values()):
            if entry.sequence < before and entry.ids & ids:
                if entry.nonce not in grant.nonces:
                    return None
                if entry.ids == ids:
                    return grant
        return None

    def _stale(self) -> list[str]:
        """Answers of no known pod whose slots were given out again so much later that it was to another pod."""
        owned = {nonce for grant in self._grants.values() for nonce in grant.nonces}
        latest: dict[str, int] = {}
        for entry in self._entries.values():
            latest |= dict.fromkeys(entry.ids, entry.sequence)
        return [
            entry.nonce
            for entry in self._entries.values()
            if entry.nonce not in owned and any(latest[slot] - entry.sequence > LONGEST_RUN for slot in entry.ids)
        ]

    def _append(self, lines: Sequence[bytes]) -> None:
        if not self._is_in_place():
            LOG.error("the allocation log was moved, removed or cut: it is written anew file=%s", self._path)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self.rewrite()
        content = b"".join(lines)
        try:
            _write_all(self._file, content)
        except OSError:
            with contextlib.suppress(OSError):  # the next start cuts off what is torn
                os.ftruncate(self._file, self._size)
            raise
        self._lines += len(lines)
        self._size += len(content)

    def _read(self, content: bytes) -> None:
        whole, _, torn = content.rpartition(b"\n")
        unreadable = [n for n, text in enumerate(whole.split(b"\n"), 1) if text and not self._take(text)]
        if unreadable:
            LOG.error(
                "lines of the allocation log cannot be read file=%s lines=%d first=%d",
                self._path, len(unreadable), unreadable[0],
            )  # fmt: skip
        if torn:
            LOG.warning("cut off a torn last line file=%s bytes=%d", self._path, len(torn))
            os.truncate(self._path, len(content) - len(torn))

    def _take(self, text: bytes) -> bool:
        """Could it be read? Raises ConfigurationError for a line of a later version."""
        self._lines += 1
        try:
            if (version := _Version.model_validate_json(text).v) > VERSION:
                raise ConfigurationError(
                    f"the allocation log {self._path} is of a later version (v {version}, known is {VERSION}): "
                    "run that version of the agent, or drain the node and remove the file"
                )
            line = _Line.model_validate_json(text)
            if line.grant is not None:
                parse_assignment(line.grant.assignment)
                self._grants[line.grant.uid] = line.grant
                return True
        except (ValidationError, MalformedObject):
            return False
        self._next = max(self._next, line.sequence + 1)
        if line.nonce is not None:
            self._entries[line.nonce] = Entry(line.sequence, line.nonce, frozenset(line.ids))
        return True


def _entry_line(entry: Entry) -> bytes:
    return _line({"v": VERSION, "sequence": entry.sequence, "nonce": entry.nonce, "ids": sorted(entry.ids)})


def _grant_line(grant: Grant) -> bytes:
    return _line({"v": VERSION, "grant": grant.model_dump()})


def _line(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _write_all(file: int, content: bytes) -> None:
    while content:
        content = content[os.write(file, content) :]
    os.fsync(file)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
