"""The demo as a person runs it: every claim is made and holds, and Ctrl-C leaves nothing behind."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from devcluster.waiting import wait_until

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 110
INTERRUPTED = 130
# A shell starts what it puts in the background deaf to Ctrl-C, and children inherit that; a person's demo is not.
HEEDING_CTRL_C = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("devcluster.demo", run_name="__main__", alter_sys=True)
"""


def start(output: Path, *options: str, story: str = "demo") -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT}"}
    command = [sys.executable, "-c", HEEDING_CTRL_C.replace("devcluster.demo", f"devcluster.{story}"), *options]
    with output.open("wb") as target:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=target, stderr=subprocess.STDOUT)


def children(pid: int) -> set[int]:
    """The processes that a process has started and that still run."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == pid and state != "Z":
            found.add(int(stat.parent.name))
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("story", "options", "chapters", "claims"),
    [("demo", ("--idle-seconds", "5"), 6, 15), ("demo_preempt", (), 6, 12)],
    ids=["demo", "demo-preempt"],
)
def test_every_claim_of_the_demo_holds(
    tmp_path: Path, story: str, options: tuple[str, ...], chapters: int, claims: int
) -> None:
    output = tmp_path / "demo.txt"
    demo = start(output, *options, "--width", str(WIDTH), story=story)
    try:
        status = demo.wait(540)
    finally:
        demo.kill()
    text = output.read_text()
    assert status == 0, text
    assert re.findall(r"^(\d+)\. ", text, re.MULTILINE) == [str(number + 1) for number in range(chapters)]
    assert len(re.findall(r"^HELD  ", text, re.MULTILINE)) == claims
    assert f"{claims} of {claims} claims held" in text
    assert max(map(len, text.splitlines())) <= WIDTH


def test_an_interrupt_ends_everything(tmp_path: Path) -> None:
    output = tmp_path / "demo.txt"
    demo = start(output)
    try:
        wait_until(lambda: "installing the product" in output.read_text(), "the cluster to run", 120)
        started = children(demo.pid)
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == INTERRUPTED
    finally:
        demo.kill()
    assert len(started) >= 4
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]
    assert "Interrupted" in output.read_text()
    assert "Traceback" not in output.read_text()
