"""The product's image from the Dockerfile, kube-scheduler's from the built control plane: once per content each.

Enters: the Dockerfile with the files that .dockerignore lets through, the built programs. Leaves: two archives in
the user's cache, named by a hash of their sources. May not live here: how a step is run.
"""

import fcntl
import hashlib
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from devcluster.build import KUBERNETES_VERSION, cache_root, ensure_binaries, source_key
from devcluster.image import base
from devcluster.image.pip_access import pip_secrets
from devcluster.image.storage import Storage, open_storage
from devcluster.node.images import ImageContent, write_image

ROOT = Path(__file__).resolve().parents[2]
TAG = "devnode"
PRODUCT = f"docker.io/library/vgpu-operator:{TAG}"
SCHEDULER = f"docker.io/library/vgpu-kube-scheduler:{KUBERNETES_VERSION}"
BUILD_STAGE = "localhost/vgpu-build:latest"
BUILDS_KEPT = 2


@dataclass(frozen=True, slots=True)
class Image:
    """An image: the name that manifests use, and the archive that holds it."""

    name: str
    archive: Path


def ensure_images() -> Sequence[Image]:
    """The images that manifests/overlays/devnode names, built first where the cache has none.

    Needs root on Linux with buildah and debootstrap. Raises BuildFailed, OSError.
    """
    with _build_lock():
        return [_scheduler(), _product()]


def copy_context(target: Path) -> str:
    """Copy the Dockerfile and its context, so that a build sees one state of it; hands back a short hash of it."""
    digest = hashlib.sha256(base.name().encode())
    for path in _context_files():
        place = path.relative_to(ROOT)
        (target / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target / place)
        data = (target / place).read_bytes()
        digest.update(f"{place}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:16]


def _context_files() -> list[Path]:
    """What .dockerignore lets into a build, with itself: it names what is let in and shuts out the rest."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    let_in = [ROOT / line.removeprefix("!") for line in lines if line.startswith("!")]
    found = [path for place in let_in for path in ([place] if place.is_file() else place.rglob("*"))]
    kept = [path for path in found if path.is_file() and "__pycache__" not in path.parts]
    return sorted([ROOT / "Dockerfile", ROOT / ".dockerignore", *kept])


def _product() -> Image:
    with open_storage(_folder()) as storage:
        context = storage.work / "context"
        archive = _folder() / f"vgpu-operator-{copy_context(context)}.tar"
        if not archive.is_file():
            _build(storage, context, archive)
    archive.touch()
    _remove_old("vgpu-operator-*.tar")
    return Image(PRODUCT, archive)


def _build(storage: Storage, context: Path, archive: Path) -> None:
    storage.remove_leftovers(base.old_names(storage))
    base_image = base.ensure_base(storage)
    build = ["bud", "--layers", "--build-arg", f"BASE_IMAGE={base_image}", *pip_secrets(storage.work)]
    # The first stage has a name too: layers that no named image is made of are removed before the next build.
    first = [*build, "--target", "build", "--tag", BUILD_STAGE, str(context)]
    storage.buildah("installing the locked packages", *first)
    storage.buildah("building the image", *build, "--tag", PRODUCT, str(context))
    whole = storage.work / "image.tar"
    storage.buildah("writing the image's archive", "push", PRODUCT, f"docker-archive:{whole}:{PRODUCT}")
    whole.rename(archive)


def _scheduler() -> Image:
    archive = _folder() / f"kube-scheduler-{source_key()}.tar"
    if not archive.is_file():
        program = ensure_binaries().path("kube-scheduler")
        content = ImageContent(SCHEDULER, ("kube-scheduler",), {"/usr/local/bin/kube-scheduler": program})
        write_image(content, archive.with_suffix(".partial")).rename(archive)
    _remove_old("kube-scheduler-*.tar")
    return Image(SCHEDULER, archive)


def _remove_old(pattern: str) -> None:
    newest_last = sorted(_folder().glob(pattern), key=lambda path: path.stat().st_mtime)
    for path in newest_last[:-BUILDS_KEPT]:
        path.unlink()


def _folder() -> Path:
    return cache_root() / "images"


@contextmanager
def _build_lock() -> Iterator[None]:
    _folder().mkdir(parents=True, exist_ok=True)
    with (_folder() / "build.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("devcluster: another image build is running; waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
