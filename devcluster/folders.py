"""One temporary folder per cluster, and the removal of those whose owner was killed.

A folder is in use as long as its lock file is locked; the kernel lets go of the lock however the owner ends.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

PREFIX = "vgpu-devcluster-"
KEEP_VARIABLE = "VGPU_DEVCLUSTER_KEEP"


class ClusterFolder:
    """A fresh folder of this process, removed by `close` unless KEEP_VARIABLE is set."""

    def __init__(self) -> None:
        _remove_abandoned()
        # Takes its final name only when it is locked: another process must not find it unlocked and remove it.
        fresh = Path(tempfile.mkdtemp(prefix=f"new-{PREFIX}"))
        self._lock: IO[str] = _lock_file(fresh).open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = fresh.rename(fresh.with_name(fresh.name.removeprefix("new-")))

    def close(self) -> None:
        """Let go of the folder and remove it."""
        if not os.environ.get(KEEP_VARIABLE):
            shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _lock_file(folder: Path) -> Path:
    return folder / "owner.lock"


def _remove_abandoned() -> None:
    if os.environ.get(KEEP_VARIABLE):
        return
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            with _lock_file(folder).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # in use, not yet locked by its maker, or somebody else's
