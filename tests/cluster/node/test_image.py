"""The real image: what is in it, how its build ends, and the demo that installs it on a real node."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from devcluster.errors import BuildFailed
from devcluster.image import product
from devcluster.image.confined import run_confined
from devcluster.image.product import PRODUCT, Image, ensure_images
from devcluster.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[3]
CHAPTERS = 5
CLAIMS = 6
WIDTH = 110
INTERRUPTED = 130
BUILD_ONLY = ("etc/pip.conf", "run/secrets", "opt/build", "src", "dist")
"""Places of a build's secrets and tools."""
# A shell starts what it puts in the background deaf to Ctrl-C, and children inherit that; a person's demo is not.
HEEDING_CTRL_C = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("devcluster.demo_node", run_name="__main__", alter_sys=True)
"""
ENDLESS_STEP = """
from devcluster.image.confined import run_confined
run_confined("sleeping", ["/bin/sh", "-c", "{script}"])
"""


@pytest.fixture(scope="module", autouse=True)
def images(node_possible: None) -> Sequence[Image]:
    """The built images, made before any test of this module measures itself against a time-out."""
    return ensure_images()


def traces(archive: Path) -> list[str]:
    """What an image tells of the machine that built it: files of the build, variables of its pip."""
    with tarfile.open(archive) as outer:
        manifest = json.load(outer.extractfile("manifest.json"))[0]  # type: ignore[arg-type]
        config = json.load(outer.extractfile(manifest["Config"]))["config"]  # type: ignore[arg-type]
        names = [name for layer in manifest["Layers"] for name in _names(outer, layer)]
    found = [name for name in names if any(name == place or name.startswith(f"{place}/") for place in BUILD_ONLY)]
    return found + [pair for pair in config.get("Env", []) if re.match("PIP_|SSL_|REQUESTS_", pair)]


def _names(outer: tarfile.TarFile, layer: str) -> Iterator[str]:
    with tarfile.open(fileobj=outer.extractfile(layer)) as inner:
        for member in inner:
            yield member.name.removeprefix("./").strip("/")


def archive_with(target: Path, place: str, variable: str) -> Path:
    """An image of one empty file and one variable."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as inner:
        inner.addfile(tarfile.TarInfo(place))
    parts = {
        "manifest.json": json.dumps([{"Config": "config.json", "Layers": ["layer.tar"]}]).encode(),
        "config.json": json.dumps({"config": {"Env": [variable]}}).encode(),
        "layer.tar": layer.getvalue(),
    }
    with tarfile.open(target, "w") as outer:
        for name, data in parts.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            outer.addfile(entry, io.BytesIO(data))
    return target


def test_the_image_tells_nothing_of_the_machine_that_built_it(images: Sequence[Image]) -> None:
    [archive] = [image.archive for image in images if image.name == PRODUCT]
    assert traces(archive) == []


def test_what_a_build_leaves_in_an_image_is_seen(tmp_path: Path) -> None:
    assert traces(archive_with(tmp_path / "clean.tar", "opt/vgpu/bin/pip", "PATH=/bin")) == []
    for place, variable in (("./etc/pip.conf", "A=b"), ("run/secrets/pip-ca", "A=b"), ("bin/x", "PIP_CERT=/x")):
        assert len(traces(archive_with(tmp_path / "dirty.tar", place, variable))) == 1


def test_a_second_build_of_the_same_sources_is_a_look_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    product.copy_context(tmp_path)
    monkeypatch.setattr(product, "ROOT", tmp_path)  # nobody edits these sources between the two
    first = [image.archive.stat().st_ino for image in ensure_images()]
    assert [image.archive.stat().st_ino for image in ensure_images()] == first


def test_a_failed_step_says_what_it_printed() -> None:
    with pytest.raises(BuildFailed, match=r"(?s)a step failed: /bin/sh ended with 3:\nwhat went wrong"):
        run_confined("a step", ["/bin/sh", "-c", "echo what went wrong >&2; exit 3"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_step_ends_with_its_owner_and_takes_its_mounts_along(tmp_path: Path, number: signal.Signals) -> None:
    started, name, seconds = tmp_path / "started", f"mount-of-{tmp_path.name}", f"3600.{os.getpid()}"
    script = f"mount -t tmpfs {name} /mnt && touch {started} && exec sleep {seconds}"
    code = ENDLESS_STEP.format(script=script)
    owner = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment())
    try:
        wait_until(started.exists, "the step to run")
        assert name not in Path("/proc/self/mounts").read_text()
        owner.send_signal(number)
        owner.wait(30)
    finally:
        owner.kill()
    wait_until(lambda: not running(seconds), "the step to end")


def running(word: str) -> list[str]:
    """The processes with this word on their command line."""
    commands = Path("/proc").glob("[0-9]*/cmdline")
    return [path.parent.name for path in commands if word.encode() in _read(path).split(b"\0")]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT}"}


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A short place for the demo's folder: the names of Unix sockets below it may have 107 characters."""
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        yield Path(folder)


def start_demo(temporary: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", HEEDING_CTRL_C, "--width", str(WIDTH)]
    with (temporary / "out").open("wb") as output:
        return subprocess.Popen(
            command, cwd=ROOT, env={**environment(), "TMPDIR": str(temporary)},
            stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip


def left_of(temporary: Path) -> list[str]:
    """Processes, mounts and files that name the demo's folder."""
    processes = [
        path.parent.name
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if f"{temporary}/".encode() in _read(path)
    ]
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if f"{temporary}/" in line]
    return [*processes, *mounts, *(path.name for path in temporary.iterdir() if path.name != "out")]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended meanwhile
        return b""


def test_every_claim_of_the_node_demo_holds(temporary: Path) -> None:
    demo = start_demo(temporary)
    try:
        status = demo.wait(600)
    finally:
        demo.kill()
    text = (temporary / "out").read_text()
    assert status == 0, text
    assert re.findall(r"^(\d+)\. ", text, re.MULTILINE) == [str(number + 1) for number in range(CHAPTERS)]
    assert len(re.findall(r"^HELD  ", text, re.MULTILINE)) == CLAIMS
    assert f"{CLAIMS} of {CLAIMS} claims held" in text
    assert max(map(len, text.splitlines())) <= WIDTH
    assert left_of(temporary) == []


def test_an_interrupt_of_the_node_demo_leaves_nothing(temporary: Path) -> None:
    output = temporary / "out"
    demo = start_demo(temporary)
    try:
        wait_until(lambda: "A node of this machine" in output.read_text(), "the node to run", 120)
        assert left_of(temporary)
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == INTERRUPTED
    finally:
        demo.kill()
    assert "Interrupted" in output.read_text()
    assert "Traceback" not in output.read_text()
    assert left_of(temporary) == []
