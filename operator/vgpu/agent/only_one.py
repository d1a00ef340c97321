"""One agent on a node: whoever holds the lock on the state folder.

The folder enters; a lock that lasts as long as this process, what it becomes and its children, leaves. Two agents
would take turns at kubelet's socket and write one log of answers without knowing of each other.
"""

import fcntl
import os
import time
from pathlib import Path

from vgpu.errors import ConfigurationError

LOCK_FILE = "agent.lock"
PATIENCE_SECONDS = 10.0
"""Children of an agent that was killed a moment ago are about to end."""
LOOK_SECONDS = 0.1


def be_the_only_one(state_folder: Path, patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Take the lock. Raises ConfigurationError if another agent keeps it, or where the folder cannot be used."""
    path = state_folder / LOCK_FILE
    try:
        state_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigurationError(
            f"the state folder {state_folder} cannot be used: {error}; VGPU_AGENT_STATE_FOLDER names another"
        ) from error
    if not _locked(handle, time.monotonic() + patience_seconds):
        os.close(handle)
        raise ConfigurationError(
            f"another agent runs on this node: it holds {path}; a node has one, this one is not started"
        )
    os.set_inheritable(handle, True)


def _locked(handle: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOOK_SECONDS)
