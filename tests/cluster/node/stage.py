"""The product on the real node: operator, kube-scheduler, and the agent with cards from a file.

Enters: a running node. Leaves: a Stage (pods by name, events, inventories) that knows the node's own side as
well: the agent as one process tree to be hurt, its files, what kubelet offers. The agent has the account of a pod
on this node, and in place of HAMi-core's library there is a file. Pods live in the namespace `default`.
"""

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from devcluster.errors import StartFailed
from devcluster.node import BUSYBOX_IMAGE, RealNode
from devcluster.operators import Operators, stop_product
from devcluster.product import ROOT, install
from devcluster.waiting import wait_until
from tests.cluster.stage import INVENTORIES, PODS, QUICK, Stage, is_ready
from vgpu import names

Json = dict[str, Any]

AGENT = "agent"
AGENT_MODULE = ("-m", "vgpu.agent.main")
TOLD = "slots told to kubelet"
"""What the agent logs once kubelet listens to it."""
STATE = Path("/var/lib/vgpu/agent")
"""As the node's programs know it."""
LIBRARY = Path("/var/lib/vgpu/library/libvgpu.so")
"""The same: limits are held to by this file, which the tests' containers never load."""
CARDS = 8
MEMORY_MIB = 81_920
SLOTS_PER_CARD = 60
SLOTS = CARDS * SLOTS_PER_CARD
CARDS_OF_NODE: Json = {"cards": {"count": CARDS, "memoryMiB": MEMORY_MIB}}
AGENT_POD = "agent-account"
"""It does nothing: the agent's token is bound to it."""
PATIENCE_SECONDS = 180.0
"""How long a test waits for what takes seconds on a machine of its own."""
LOOK_SECONDS = 0.25
"""Between two looks at all pods: they cost the API server more than the pods themselves do."""
GRACE_SECONDS = 1
"""With 0 the API server would forget a pod that kubelet still has."""


@dataclass(slots=True)
class NodeStage(Stage):
    """What a test asks for of the product on one real node."""

    node: RealNode = field(kw_only=True)
    _said_before: int = 0
    """Characters that agents before this one have logged."""

    # The agent.

    def start_agent(self, module: Sequence[str] = AGENT_MODULE, **environment: str) -> None:
        """Start the agent on the node; comes back at once."""
        log = self.node.site.folder / f"{AGENT}.log"
        self._said_before = len(self.agent_log()) if log.exists() else 0
        self.node.start_process(AGENT, [sys.executable, *module], {**self._agent_environment(), **environment})

    def kill_agent(self) -> None:
        """As kill -9 of its first process, which takes the others with it."""
        self.node.end_process(AGENT)

    def restart_agent(self) -> None:
        """Killed and started, and the node open again."""
        self.kill_agent()
        self.start_agent()
        self.wait_open()

    def agent_log(self) -> str:
        """What all agents of this node have logged."""
        return (self.node.site.folder / f"{AGENT}.log").read_text(errors="replace")

    def write_cards(self, document: Json = CARDS_OF_NODE) -> None:
        """The node's cards are like this from now on; the agent looks once a second."""
        _replace(self.cards_file, yaml.safe_dump(document))

    @property
    def cards_file(self) -> Path:
        """What the agent reads its cards from."""
        return self.node.site.folder / "cards.yaml"

    @property
    def state_folder(self) -> Path:
        """The agent's own files, as this process finds them."""
        return self.outside(STATE)

    def outside(self, path: Path) -> Path:
        """A path below the node's /var/lib/vgpu as this process finds it."""
        return self.node.node_site.folder / "vgpu" / path.relative_to("/var/lib/vgpu")

    def provide_library(self) -> None:
        """The isolation library is there."""
        library = self.outside(LIBRARY)
        library.parent.mkdir(parents=True, exist_ok=True)
        library.write_bytes(b"a stand-in")

    def _agent_environment(self) -> dict[str, str]:
        return {
            "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT}",
            "NODE_NAME": self.node.name,
            "VGPU_AGENT_SOURCE": "fixed",
            "VGPU_AGENT_FIXED_FILE": str(self.cards_file),
            "VGPU_AGENT_CONFIG": str(self._settings_file()),
            "KUBECONFIG": str(self.node.kubeconfig(self._agent_token())),
        }

    def _settings_file(self) -> Path:
        path = self.node.site.folder / "agent-settings.yaml"
        settings = {"slots": SLOTS_PER_CARD, "isolationLibrary": str(LIBRARY)}
        path.write_text(yaml.safe_dump({"defaults": settings}))
        return path

    def _agent_token(self) -> str:
        token_file = self.node.site.folder / "agent-token"
        if not token_file.exists():
            path = f"/api/v1/namespaces/{names.NAMESPACE}/pods"
            pod = busybox_pod(AGENT_POD, command=["sleep", "2147483647"])
            pod["spec"] |= {"nodeName": self.node.name, "serviceAccountName": names.AGENT_ACCOUNT}
            self.node.api.post(path, pod)
            token = self.node.token_for_service_account(names.NAMESPACE, names.AGENT_ACCOUNT, AGENT_POD)
            token_file.write_text(token)
        return token_file.read_text()

    # The node.

    def allocatable(self) -> int:
        """Slots that kubelet offers."""
        return self._of_status("allocatable")

    def capacity(self) -> int:
        """Slots that kubelet knows of."""
        return self._of_status("capacity")

    def wait_open(self, slots: int = SLOTS) -> None:
        """Wait until kubelet and the inventory offer so many slots and the node takes pods.

        Either may be ahead of the other: kubelet hears of cards from the agent at once. It goes on offering for a
        moment what an agent offered that has ended, and would turn pods away: this one has to have told it.
        """

        def is_open() -> bool:
            published = self.node.api.get(INVENTORIES)["items"]
            told = [item.get("status", {}).get("totals", {}).get("slots") for item in published]
            heard = TOLD in self.agent_log()[self._said_before :]
            offered = heard and self.allocatable() == slots and told == [slots]
            return offered and is_ready(self.node, self.node.name)

        self.node.wait_until(is_open, f"{self.node.name} to offer {slots} slots and to be open", PATIENCE_SECONDS)

    def _of_status(self, part: str) -> int:
        status = self.node.api.get(f"/api/v1/nodes/{self.node.name}")["status"]
        return int(status.get(part, {}).get(names.VOLCANO_NUMBER, "0"))

    # Pods.

    def items(self) -> dict[str, Json]:
        """All pods now, by name."""
        return {pod["metadata"]["name"]: pod for pod in self.node.api.get(PODS)["items"]}

    def wait_phase(self, phase: str, *pod_names: str, timeout_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until all of these pods are in this phase."""

        def reached() -> bool:
            pods = self.items()
            return all(name in pods and pods[name]["status"].get("phase") == phase for name in pod_names)

        self.node.wait_until(
            reached, f"{len(pod_names)} pods ({pod_names[0]}, ...) to be {phase}", timeout_seconds
        )

    def wait_running(self, *pod_names: str, timeout_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until all of these pods are Running with every container ready."""

        def running() -> bool:
            pods = self.items()
            return all(name in pods and is_running(pods[name]) for name in pod_names)

        what = f"{len(pod_names)} pods ({pod_names[0]}, ...) to run"
        try:
            wait_until(running, what, timeout_seconds, LOOK_SECONDS)
        except StartFailed as error:
            error.add_note(self.troubles(pod_names))
            raise

    def troubles(self, pod_names: Sequence[str], most: int = 5) -> str:
        """What is known of those of these pods that do not run, and the end of the agent's log."""
        pods = self.items()
        stuck = [name for name in pod_names if name not in pods or not is_running(pods[name])]
        lines = [f"{len(stuck)} of {len(pod_names)} do not run: {', '.join(stuck)}"]
        for name in stuck[:most]:
            lines += [f"{name}: {pods.get(name, {}).get('status')}", *self.kubelet_warnings(name)]
            lines += [str(event["message"]) for event in self.events(name)] if name in pods else []
        return "\n".join([*lines, *self.agent_log().splitlines()[-30:]])

    def wait_kubelet_says(self, name: str, text: str, timeout_seconds: float = PATIENCE_SECONDS) -> str:
        """Wait until one of the pod's warning events of kubelet holds this text; hands back the message."""
        found: list[str] = []

        def told() -> bool:
            found[:] = [message for message in self.kubelet_warnings(name) if text in message]
            return bool(found)

        self.node.wait_until(told, f"kubelet to say {text!r} of {name}", timeout_seconds)
        return found[0]

    def kubelet_warnings(self, name: str) -> list[str]:
        """The messages of the pod's warning events that kubelet wrote."""
        query = f"fieldSelector=type%3DWarning,involvedObject.name%3D{name}"
        items = self.node.api.get(f"/api/v1/namespaces/default/events?{query}")["items"]
        return [str(item["message"]) for item in items if item["source"].get("component") == "kubelet"]

    def remove_pods(self) -> None:
        """Delete every pod of a test and wait until kubelet, inventory and agent have nothing of them any more."""
        self.node.api.delete(PODS, {"gracePeriodSeconds": GRACE_SECONDS})
        wait_until(lambda: not self.items(), "all pods to be gone", PATIENCE_SECONDS, LOOK_SECONDS)
        self.node.wait_until(
            lambda: self.used_slots() == 0, "the inventory to show nothing used", PATIENCE_SECONDS
        )
        self.node.wait_until(
            lambda: not self.cdi_files(), "the CDI files of gone pods to be removed", PATIENCE_SECONDS
        )

    def settle(self) -> None:
        """However a test ended: cards, library and agent as at the start, no pods, the node open."""
        self.provide_library()
        self.write_cards()
        if AGENT not in self.node.processes or not self.node.processes[AGENT].alive():
            self.start_agent()
        self.remove_pods()
        self.wait_open()

    def cdi_files(self) -> list[Path]:
        """What the agent wrote for the container runtime."""
        return sorted(self.node.cdi_folder.glob("vgpu-pod-*.json"))


def busybox_pod(name: str, *, command: Sequence[str], limits: Mapping[str, str] | None = None) -> Json:
    """A pod of one container; without limits on cards it is no business of the product."""
    container = busybox_container("main", command=command, limits=limits)
    spec = {"containers": [container], "terminationGracePeriodSeconds": GRACE_SECONDS}
    return {"metadata": {"name": name}, "spec": spec}


def busybox_container(name: str, *, command: Sequence[str], limits: Mapping[str, str] | None = None) -> Json:
    """One container, with the amounts that it asks for."""
    return {
        "name": name, "image": BUSYBOX_IMAGE, "imagePullPolicy": "Never", "command": list(command),
        "resources": {"limits": dict(limits or {})},
    }  # fmt: skip


def is_running(pod: Json) -> bool:
    """Whether all app containers of a pod run and are ready."""
    status = pod["status"]
    ready = [container["ready"] for container in status.get("containerStatuses", ())]
    return status.get("phase") == "Running" and bool(ready) and all(ready)


@contextmanager
def staged_on(node: RealNode, **settings: str) -> Iterator[NodeStage]:
    """The product on `node`, which is open inside the block. Leaves the node without product and pods."""
    install(node)
    operators = Operators(node, {**QUICK, **settings})
    stage = NodeStage(operators, node=node)
    stage.provide_library()
    stage.write_cards()
    try:
        operators.start()
        stage.start_agent()
        operators.wait_serving()
        operators.start_scheduler()
        stage.wait_open()
        yield stage
    finally:
        stop_product(operators)
        if AGENT in node.processes:
            stage.kill_agent()
        shutil.rmtree(stage.state_folder, ignore_errors=True)


def _replace(path: Path, text: str) -> None:
    """Whole, so that nobody reads half of it."""
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    partial.rename(path)
