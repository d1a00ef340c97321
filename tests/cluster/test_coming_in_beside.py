"""The commands of docs/coming-in-beside.md, as a person pastes them, against the real API server."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devcluster import Cluster
from devcluster.build import ensure_binaries
from devcluster.nodes import NodeShape

pytestmark = pytest.mark.cluster

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "coming-in-beside.md"
KEY = "policy.vgpu.dev/agent"
OURS = {"key": KEY, "operator": "Exists", "effect": "NoSchedule"}
OTHER = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
SETS: dict[str, list[dict[str, str]] | None] = {
    "hami-device-plugin": [OTHER],
    "volcano-device-plugin": None,
    "everywhere": [{"operator": "Exists"}],
    "everywhere-no-schedule": [{"operator": "Exists", "effect": "NoSchedule"}],
    "no-execute-only": [{"key": KEY, "operator": "Exists", "effect": "NoExecute"}],
    "had-it": [OURS],
}
LACKING = {"hami-device-plugin", "volcano-device-plugin", "no-execute-only"}


def guide_block(start: str) -> str:
    """The indented block of the guide that has a line beginning so."""
    blocks = re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", GUIDE.read_text(), re.MULTILINE)
    [found] = [block for block in blocks if re.search(rf"^ +{re.escape(start)}", block, re.MULTILINE)]
    return re.sub(r"^ {4}", "", found, flags=re.MULTILINE)


def function(name: str) -> str:
    """One shell function of the guide."""
    found = re.search(rf"^{name}\(\) {{.*?^}}$", guide_block(f"{name}() {{"), re.MULTILINE | re.DOTALL)
    assert found
    return found.group()


def shell(cluster: Cluster, text: str) -> str:
    """Run what a person would paste."""
    program = ensure_binaries().path("kubectl")
    home = str(cluster.site.folder)  # kubectl caches below it
    path, kubeconfig = f"{program.parent}:/usr/bin:/bin", str(cluster.kubeconfig())
    environment = {"PATH": path, "HOME": home, "KUBECONFIG": kubeconfig}
    done = subprocess.run(
        ["bash", "-euc", text], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def sets(clean_cluster: Cluster) -> Iterator[Cluster]:
    """DaemonSets with tolerations of every kind."""
    path = "/apis/apps/v1/namespaces/kube-system/daemonsets"
    for name, tolerations in SETS.items():
        labels = {"app": name}
        pod: dict[str, Any] = {"containers": [{"name": "main", "image": "none"}]}
        if tolerations is not None:
            pod["tolerations"] = tolerations
        template = {"metadata": {"labels": labels}, "spec": pod}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        clean_cluster.api.post(path, {"metadata": {"name": name}, "spec": spec})
    yield clean_cluster
    for name in SETS:
        clean_cluster.api.delete(f"{path}/{name}")


def lacking(cluster: Cluster) -> set[str]:
    """What the guide's `lacking` names."""
    return {line.split()[1] for line in shell(cluster, f"{function('lacking')}\nlacking").splitlines()}


def tolerations(cluster: Cluster, name: str) -> list[dict[str, str]]:
    path = f"/apis/apps/v1/namespaces/kube-system/daemonsets/{name}"
    found: list[dict[str, str]] = cluster.api.get(path)["spec"]["template"]["spec"]["tolerations"]
    return found


def test_daemonsets_are_let_through_and_keep_what_they_tolerate(sets: Cluster) -> None:
    assert lacking(sets) == LACKING
    each = "\n".join(f"tolerate kube-system {name}" for name in sorted(LACKING))
    shell(sets, f"{function('tolerate')}\n{each}")
    assert lacking(sets) == set()
    assert tolerations(sets, "hami-device-plugin") == [OTHER, OURS]
    assert tolerations(sets, "volcano-device-plugin") == [OURS]


def test_a_plugin_that_was_let_through_comes_back_on_a_handed_over_node(sets: Cluster) -> None:
    """And one that was not does not: that is what the step is for."""
    [node] = sets.create_nodes(1, NodeShape(), prefix="handed-")
    shell(sets, f"{function('tolerate')}\ntolerate kube-system hami-device-plugin")

    def made() -> dict[str, str]:
        items = sets.api.get("/api/v1/namespaces/kube-system/pods")["items"]
        return {item["metadata"]["labels"]["app"]: item["metadata"]["uid"] for item in items}

    sets.wait_until(lambda: set(made()) == set(SETS), "a pod of each DaemonSet")
    shell(sets, f"kubectl taint node {node} {KEY}=on:NoSchedule")
    before = made()
    for item in sets.api.get("/api/v1/namespaces/kube-system/pods")["items"]:
        path = f"/api/v1/namespaces/kube-system/pods/{item['metadata']['name']}"
        sets.api.delete(path, {"gracePeriodSeconds": 0})
    back = set(SETS) - {"volcano-device-plugin", "no-execute-only"}
    sets.wait_until(lambda: back <= {name for name, uid in made().items() if uid != before[name]}, "new pods")
    assert set(made()) == back


def test_all_taints_come_off_where_some_nodes_never_had_one(clean_cluster: Cluster) -> None:
    handed, other = clean_cluster.create_nodes(2, NodeShape(), prefix="taints-")
    shell(clean_cluster, f"kubectl taint node {handed} {KEY}=on:NoSchedule\nkubectl label node {handed} {KEY}=on")
    pasted = map(str.strip, GUIDE.read_text().splitlines())
    lines = [line for line in pasted if re.match("kubectl (taint|label) nodes ", line)]
    assert len(lines) == 2
    shell(clean_cluster, "\n".join(lines))
    for node in (handed, other):
        found = json.loads(shell(clean_cluster, f"kubectl get node {node} -o json"))
        assert KEY not in [taint["key"] for taint in found["spec"].get("taints", [])]
        assert KEY not in found["metadata"].get("labels", {})
