"""Builds the programs of the checked-in Go modules, once per content of their sources.

Enters: `controlplane/` and `containerd/` beside this file. Leaves: for each a folder of executables in the user's
cache, named by a hash of the sources, so that the source tree stays clean and a second build of the same sources
is a look-up. May not live here: starting any of the programs.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import BuildFailed
from devcluster.go_toolchain import find_go
from devcluster.progress import Progress

HERE = Path(__file__).parent
KUBERNETES_VERSION = "v1.36.3"
FAILURE_LINES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Package:
    """One Go package to build: the executable's name, further names for it, flags of its own."""

    path: str
    output: str
    links: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    link_flags: str = ""


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module beside this file, what is built from it, and how long that takes from nothing."""

    name: str
    sources: tuple[str, ...]
    packages: tuple[Package, ...]
    duration: str

    @property
    def folder(self) -> Path:
        """Where its sources lie."""
        return HERE / self.name


def _kubernetes_stamp() -> str:
    version = "k8s.io/component-base/version"
    _, minor, _ = KUBERNETES_VERSION.split(".")
    return f"-X {version}.gitVersion={KUBERNETES_VERSION} -X {version}.gitMajor=1 -X {version}.gitMinor={minor}"


PROGRAMS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)
CONTROL_PLANE = Module(
    "controlplane",
    ("go.mod", "go.sum", "main.go", "tools/tools.go"),
    (
        Package(".", "controlplane", links=PROGRAMS, link_flags=_kubernetes_stamp()),
        Package("sigs.k8s.io/kwok/cmd/kwok", "kwok"),
    ),
    "about 5 minutes",
)
_CONTAINERD = "github.com/containerd/containerd/v2/cmd"
_NO_SNAPSHOTTERS = ("-tags", "no_btrfs,no_zfs,no_devmapper")
CONTAINERD = Module(
    "containerd",
    ("go.mod", "go.sum", "tools/tools.go"),
    tuple(
        Package(f"{_CONTAINERD}/{program}", program, flags=_NO_SNAPSHOTTERS)
        for program in ("containerd", "containerd-shim-runc-v2", "ctr")
    ),
    "about 3 minutes",
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """Where the built programs lie."""

    folder: Path

    def path(self, program: str) -> Path:
        """The executable of one program, by an output or a link of its module's packages."""
        return self.folder / program


def cache_root() -> Path:
    """The folder that holds builds and the state of a cluster left running for a person."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "vgpu-devcluster"


def source_key(module: Module = CONTROL_PLANE) -> str:
    """A short hash of everything that decides what the build of a module gives."""
    digest = hashlib.sha256(KUBERNETES_VERSION.encode())
    for name in module.sources:
        digest.update((module.folder / name).read_bytes())
    digest.update("".join(flag for package in module.packages for flag in package.flags).encode())
    return digest.hexdigest()[:16]


def ensure_binaries(module: Module = CONTROL_PLANE) -> Binaries:
    """The built programs of a module, building them first where the cache has none.

    Raises BuildFailed with the end of the compiler's output.
    """
    target = cache_root() / source_key(module)
    if target.is_dir():
        return Binaries(target)
    cache_root().mkdir(parents=True, exist_ok=True)
    with _build_lock():
        if not target.is_dir():
            _build_into(module, target)
    return Binaries(target)


@contextmanager
def _build_lock() -> Iterator[None]:
    with (cache_root() / "build.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("devcluster: another build is running; waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build_into(module: Module, target: Path) -> None:
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    go = find_go(_go_directive(module))
    print(f"devcluster: building {module.name}; the first time takes {module.duration} on 2 cores",
          file=sys.stderr, flush=True)  # fmt: skip
    for package in module.packages:
        _go_build(go, module, package, partial / package.output)
        for link in package.links:
            (partial / link).symlink_to(package.output)
    # The rename makes the result visible whole or not at all: a killed build leaves only the partial folder.
    partial.rename(target)


def _go_directive(module: Module) -> str:
    for line in (module.folder / "go.mod").read_text().splitlines():
        if line.startswith("go "):
            return line.split()[1]
    raise BuildFailed(f"{module.folder / 'go.mod'} names no Go version")


def _go_build(go: Path, module: Module, package: Package, output: Path) -> None:
    link_flags = f"-s -w {package.link_flags}".strip()
    command = [
        str(go), "build", "-v", "-trimpath", *package.flags, "-ldflags", link_flags,
        "-o", str(output), package.path,
    ]  # fmt: skip
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    environment.pop("GOROOT", None)  # a foreign GOROOT would mix two toolchains
    started = time.monotonic()
    process = subprocess.Popen(
        command, cwd=module.folder, env=environment, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    lines: list[str] = []
    with Progress(f"building {output.name}") as progress:
        for line in process.stdout:
            lines.append(line.rstrip())
            progress.step(line.strip())
    if process.wait() != 0:
        tail = "\n".join(lines[-FAILURE_LINES_SHOWN:])
        raise BuildFailed(f"go build {package.path} failed after {time.monotonic() - started:.0f} s:\n{tail}")
