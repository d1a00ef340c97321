"""CDI files: by these the runtime finds what a container's name in Allocate's answer stands for.

Enters: a pod's uid and, for each nonce, what is added to its container. Leaves: one file per pod, put in place
whole by a rename, so that the runtime sees all of a pod's containers or none. A nonce is never used again, so what
the runtime read once never means something else later (its cache may lag). Format: CDI specification 0.5.0.
May not live here: whether a pod may start, or is gone.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vgpu import names
from vgpu.agent.identity.contract import Edits

CDI_VERSION = "0.5.0"
PREFIX = "vgpu-pod-"
SUFFIX = ".json"
VISIBLE = "NVIDIA_VISIBLE_DEVICES="


def cdi_name(nonce: str) -> str:
    """The fully qualified name of one answer's container."""
    return f"{names.CDI_KIND}={nonce}"


def spec_text(containers: Mapping[str, Edits]) -> str:
    """The file for a pod: nonce -> what is added."""
    devices = [{"name": nonce, "containerEdits": _edits(containers[nonce])} for nonce in sorted(containers)]
    document = {"cdiVersion": CDI_VERSION, "kind": names.CDI_KIND, "devices": devices}
    return json.dumps(document, indent=1) + "\n"


class CdiFolder:
    """The files of this agent in one of the runtime's CDI folders; other files there are left alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def ensure(self, pod_uid: str, containers: Mapping[str, Edits]) -> None:
        """Make the pod's file say this; one that does already is not touched. Raises OSError."""
        text, path = spec_text(containers).encode(), self._path(pod_uid)
        if content_of(path) == text:
            return
        put_in_place(path, text, path.with_suffix(".tmp"))  # the runtime reads .json and .yaml only

    def remove(self, pod_uid: str) -> None:
        """Remove the pod's file, if it is there. Raises OSError."""
        self._path(pod_uid).unlink(missing_ok=True)

    def pods(self) -> Iterable[str]:
        """The uids of the pods that have a file."""
        return [path.name[len(PREFIX) : -len(SUFFIX)] for path in self._folder.glob(f"{PREFIX}*{SUFFIX}")]

    def cards(self, pod_uid: str) -> frozenset[str] | None:
        """The cards that the pod's file names; None where it cannot be read or names none."""
        try:
            document = json.loads(self._path(pod_uid).read_bytes())
            lines = [line for device in document["devices"] for line in device["containerEdits"]["env"]]
            cards = [line[len(VISIBLE) :].split(",") for line in lines if line.startswith(VISIBLE)]
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None  # whatever somebody put there
        return frozenset(card for row in cards for card in row) or None

    def _path(self, pod_uid: str) -> Path:
        return self._folder / f"{PREFIX}{pod_uid}{SUFFIX}"


def _edits(edits: Edits) -> dict[str, Any]:
    found: dict[str, Any] = {"env": [f"{name}={value}" for name, value in sorted(edits.env.items())]}
    if edits.mounts:
        found["mounts"] = [
            {
                "hostPath": mount.host_path,
                "containerPath": mount.container_path,
                "options": ["ro" if mount.read_only else "rw", "nosuid", "nodev", "bind"],
            }
            for mount in edits.mounts
        ]
    if edits.devices:
        found["deviceNodes"] = [{"path": device} for device in edits.devices]
    return found


def content_of(path: Path) -> bytes | None:
    """None where there is no file. Raises OSError."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def put_in_place(path: Path, content: bytes, fresh: Path) -> None:
    """Whole or not at all, by way of the file `fresh`; who has the old one open keeps it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _write_synced(fresh, content)
        os.replace(fresh, path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
