"""Removes folders that containers wrote into: of any size and depth, beside the event loop.

Folders enter by a rename, which takes no time; nothing leaves. What cannot be removed is told once and left.
May not live here: which folders go.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

LOG = logging.getLogger(__name__)
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Sweeper:
    """Empties `folder`, which must be on the file system of what is put into it. None: nothing ever is."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._arrived = asyncio.Event()
        self._told: frozenset[str] = frozenset()

    def take(self, path: Path) -> None:
        """Move it out of the way for good; nothing if it is not there. Raises OSError."""
        if self._folder is None or not os.path.lexists(path):
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        os.rename(path, self._folder / f"{path.name}.{secrets.token_hex(8)}")
        self._arrived.set()

    async def run(self) -> None:
        """Remove what was taken, by earlier processes too, until cancelled."""
        while True:
            self._arrived.clear()
            await self.sweep()
            await self._arrived.wait()

    async def sweep(self) -> None:
        """Remove once what is there now."""
        if self._folder is None:
            return
        stop = threading.Event()
        try:
            problems = await asyncio.to_thread(_Emptying(self._folder, stop.is_set).run)
        finally:
            stop.set()
        for problem in sorted(problems - self._told):
            LOG.warning("folder of a gone pod cannot be removed problem=%s", problem)
        self._told = problems


class _Emptying:
    """Removes all that is in one folder, in a thread of its own.

    Folders inside are moved up before they are removed, so that no depth matters: neither to this program's
    stack, nor to the length of a path, nor to the number of open files.
    """

    def __init__(self, folder: Path, stopped: Callable[[], bool]) -> None:
        self._folder = folder
        self._stopped = stopped
        self._waiting: deque[str] = deque()
        self._problems: set[str] = set()

    def run(self) -> frozenset[str]:
        """Do it, as far as it can be done; what was in the way."""
        try:
            with _opened(self._folder, None) as top:
                self._waiting.extend(os.listdir(top))
                while self._waiting and not self._stopped():
                    self._remove(self._waiting.popleft(), top)
        except FileNotFoundError:
            pass  # nothing was ever taken
        except OSError as error:
            self._problems.add(f"{self._folder}: {error}")
        return frozenset(self._problems)

    def _remove(self, name: str, top: int) -> None:
        try:
            os.unlink(name, dir_fd=top)
        except IsADirectoryError:
            self._remove_folder(name, top)
        except OSError as error:
            self._problems.add(f"{self._folder / name}: {error}")

    def _remove_folder(self, name: str, top: int) -> None:
        try:
            with _opened(name, top) as inside:
                while self._clear(name, inside, top):
                    continue  # a listing that is changed meanwhile may leave entries out
            if not self._stopped():
                os.rmdir(name, dir_fd=top)
        except OSError as error:
            self._problems.add(f"{self._folder / name}: {error}")

    def _clear(self, name: str, inside: int, top: int) -> bool:
        """Was anything removed or moved? Raises OSError where the folder cannot be listed."""
        done = False
        with os.scandir(inside) as entries:
            for entry in entries:
                if self._stopped():
                    return False
                try:
                    self._take_out(entry, inside, top)
                    done = True
                except OSError as error:
                    self._problems.add(f"{self._folder / name / entry.name}: {error}")
        return done

    def _take_out(self, entry: os.DirEntry[str], inside: int, top: int) -> None:
        if entry.is_dir(follow_symlinks=False):
            target = secrets.token_hex(16)
            os.rename(entry.name, target, src_dir_fd=inside, dst_dir_fd=top)
            self._waiting.append(target)
        else:
            os.unlink(entry.name, dir_fd=inside)


@contextlib.contextmanager
def _opened(path: Path | str, parent: int | None) -> Iterator[int]:
    handle = os.open(path, FOLDER_FLAGS, dir_fd=parent)
    try:
        yield handle
    finally:
        os.close(handle)
