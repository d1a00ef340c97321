"""The processes of the agent on the real node, by name, and what can be done to each of them.

Enters: a stage whose agent runs. Leaves: process ids as this process knows them, and signals. An agent started
with `lockable` as its module path can also be made to hold Python's interpreter lock, as a driver call may.
"""

import os
import signal
from pathlib import Path
from typing import Any

import yaml

from devcluster.node import InsideProcess
from devcluster.product import ROOT
from tests.cluster.node.stage import AGENT, LIBRARY, PATIENCE_SECONDS, SLOTS, SLOTS_PER_CARD, NodeStage
from vgpu.core.reasons import Reason

SERVER = "server"
READER = "reader"
HOLDS_THE_LOCK = """
import ctypes, signal
# A PyDLL's functions are called with the interpreter lock held.
signal.signal(signal.SIGUSR1, lambda *_: ctypes.PyDLL(None).sleep(3600))
"""


def supervisor(stage: NodeStage) -> int:
    """The agent's first process; 0 while there is none."""
    process = stage.node.processes[AGENT]
    assert isinstance(process, InsideProcess)
    return process.inner_pid or 0


def child(stage: NodeStage, name: str) -> int:
    """One of its children; 0 while there is none."""
    children = Path(f"/proc/{supervisor(stage)}/task/{supervisor(stage)}/children")
    try:
        pids = children.read_text().split()
        return next((int(pid) for pid in pids if _runs(pid, f"vgpu.agent.{name}")), 0)
    except (FileNotFoundError, ProcessLookupError):
        return 0


def signal_child(stage: NodeStage, name: str, number: signal.Signals) -> int:
    """Send a signal to one child; hands back which process it was."""
    stage.node.wait_until(lambda: child(stage, name) > 0, f"the agent's {name} to run")
    pid = child(stage, name)
    os.kill(pid, number)
    return pid


def wait_replaced(stage: NodeStage, name: str, former: int) -> None:
    """Wait until another process does the work of `former`."""
    stage.node.wait_until(lambda: child(stage, name) not in (0, former), f"another {name}", PATIENCE_SECONDS)


def replace_agent(stage: NodeStage, slots: int = SLOTS, **environment: str) -> None:
    """Another agent instead of the one that runs; comes back when the node is open with it.

    The node is seen closed in between: until kubelet says that the former one is gone the node looks open, and a
    pod that is bound then fails.
    """
    end_agent(stage)
    stage.start_agent(**environment)
    stage.wait_open(slots)


def end_agent(stage: NodeStage) -> None:
    """The agent is killed, and everybody knows that it is gone."""
    stage.kill_agent()
    stage.node.wait_until(lambda: stage.allocatable() == 0, "kubelet to offer nothing")
    stage.wait_gate(stage.node.name, Reason.NO_ALLOCATABLE)


def lockable(folder: Path) -> str:
    """PYTHONPATH for agents whose processes hold the interpreter lock from SIGUSR1 on."""
    (folder / "sitecustomize.py").write_text(HOLDS_THE_LOCK)
    return f"{folder}:{ROOT / 'operator'}"


def _runs(pid: str, module: str) -> bool:
    return module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def settings_file(stage: NodeStage, **settings: Any) -> str:
    """Node settings as the stage has them, but for some of them; for the agent's VGPU_AGENT_CONFIG."""
    usual = {"slots": SLOTS_PER_CARD, "isolationLibrary": str(LIBRARY)}
    path = stage.node.site.folder / "other-agent-settings.yaml"
    path.write_text(yaml.safe_dump({"defaults": usual | settings}))
    return str(path)
