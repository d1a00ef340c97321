"""The base image: Debian with Python, made from Debian's packages since no image registry is asked.

Enters: Debian's package archive. Leaves: a named image in the store, made once for what is asked for in this file.
May not live here: the product. A user's own build takes an image of python:3.11-slim-bookworm in its place.
"""

import hashlib
import os
import shutil
from pathlib import Path

from devcluster.errors import BuildFailed
from devcluster.image.confined import run_confined
from devcluster.image.storage import Storage

SUITE = "bookworm"
PACKAGES = ("python3", "python3-venv", "ca-certificates")
MIRROR_VARIABLE = "VGPU_DEBIAN_MIRROR"
MIRROR = "http://deb.debian.org/debian"
REPOSITORY = "localhost/vgpu-base"
NOT_NEEDED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale")
DOCKERFILE = 'FROM scratch\nADD root.tar /\nCMD ["python3"]\n'


def name() -> str:
    """The image's name; it changes with what is in the image."""
    recipe = "\n".join((SUITE, *PACKAGES, *NOT_NEEDED, DOCKERFILE))
    return f"{REPOSITORY}:{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"


def old_names(storage: Storage) -> list[str]:
    """Base images of other recipes."""
    return [found for found in storage.images() if found.startswith(f"{REPOSITORY}:") and found != name()]


def ensure_base(storage: Storage) -> str:
    """The name of the base image, which is made first where the store has none. Raises BuildFailed."""
    if name() not in storage.images():
        context = storage.work / "base"
        context.mkdir()
        _fill(context)
        storage.buildah("storing the base image", "bud", "--tag", name(), str(context))
    return name()


def _fill(context: Path) -> None:
    root = context / "root"
    program = shutil.which("debootstrap", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        raise BuildFailed("debootstrap is not installed; devcluster/install-packages installs it")
    options = ["--variant=minbase", f"--include={','.join(PACKAGES)}"]
    mirror = os.environ.get(MIRROR_VARIABLE, MIRROR)
    run_confined("making the base image (about a minute)", [program, *options, SUITE, str(root), mirror])
    for place in NOT_NEEDED:
        shutil.rmtree(root / place)
        (root / place).mkdir()
    run_confined("packing the base image", ["/bin/tar", "-C", str(root), "-cf", str(context / "root.tar"), "."])
    shutil.rmtree(root)
    (context / "Dockerfile").write_text(DOCKERFILE)
