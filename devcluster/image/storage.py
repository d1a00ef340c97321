"""The store that buildah keeps between builds, and the commands run on it.

Enters: buildah's arguments. Leaves: images and layers under the user's cache. May not live here: what is built.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from devcluster.errors import BuildFailed
from devcluster.image.confined import run_confined


class Storage:
    """One store; its owner sees to it that one process uses it. `work` is for files of this build alone."""

    def __init__(self, root: Path, work: Path) -> None:
        self.work = work
        self._options = ["--root", str(root), "--runroot", str(work / "run"), "--storage-driver", "overlay"]

    def buildah(self, title: str, *arguments: str) -> str:
        """Run buildah and hand back its output. Raises BuildFailed."""
        command, *rest = arguments
        isolation = ["--isolation", "chroot"] if command == "bud" else []
        arguments = (_program("buildah"), *self._options, command, *isolation, *rest)
        return run_confined(title, arguments, {"TMPDIR": str(self.work)})

    def images(self) -> Sequence[str]:
        """The full names of all images that have one."""
        listed = self.buildah("listing images", "images", "--format", "{{.Name}}:{{.Tag}}")
        return [line for line in listed.splitlines() if not line.startswith("<none>")]

    def remove_leftovers(self, old: Sequence[str]) -> None:
        """Remove unfinished builds, images by their old names, and what no named image is built from."""
        self.buildah("removing unfinished builds", "rm", "--all")
        if old:
            self.buildah("removing old images", "rmi", "--force", *old)
        self.buildah("removing old layers", "rmi", "--prune")


@contextmanager
def open_storage(folder: Path) -> Iterator[Storage]:
    """The store below a folder, with an empty folder beside it for what a build writes on its way.

    What is mounted is noted in the latter: mounts end with their step's namespaces, and neither the notes nor the
    half-written files of a build that was killed may outlive it.
    """
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        yield Storage(folder / "storage", work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise BuildFailed(f"{name} is not installed; devcluster/install-packages installs it")
    return found
