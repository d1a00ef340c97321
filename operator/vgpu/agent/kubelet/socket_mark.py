"""Tells whether the socket file under a name is still the same one. A path enters, a mark leaves."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SocketMark:
    """Tells one socket file from another of the same name. Inode numbers alone are given out again."""

    inode: int
    changed_ns: int


def mark_of(path: Path) -> SocketMark | None:
    """The file that is there now; None where there is none."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return SocketMark(status.st_ino, status.st_ctime_ns)
