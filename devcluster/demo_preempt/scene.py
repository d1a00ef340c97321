"""What the chapters of this story act on: the demo's product and nodes, with queues and workloads on them.

Enters: a running cluster. Leaves: the product at work, and what the API server says of pods, plans and evictions.
May not live here: what is told.
"""

import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import yaml

from devcluster.cluster import Cluster
from devcluster.demo.scene import PODS, Scene, open_scene
from devcluster.demo.stage import Stage
from devcluster.demo_preempt.workload import CLASSES, QUEUES, Work
from devcluster.errors import ApiRefused, DevclusterError
from devcluster.kwok import LINGER_ANNOTATION
from devcluster.operators import Replica
from devcluster.product import ROOT
from vgpu import names
from vgpu.report.sections import Section

REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
PLANS = f"/apis/{names.API_VERSION}/namespaces/default/{names.PREEMPTION_PLURAL}"
USER = f"system:serviceaccount:{names.NAMESPACE}:{names.OPERATOR_ACCOUNT}"
AT_ONCE = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Play:
    """The scene of the other demo, and what preemption needs beside it."""

    scene: Scene

    @property
    def cluster(self) -> Cluster:
        """The cluster."""
        return self.scene.cluster

    @property
    def leader(self) -> Replica:
        """Who leads now. Raises DevclusterError while nobody does."""
        leader = self.scene.operators.leader()
        if leader is None:
            raise DevclusterError("no replica of the operator leads at the moment")
        return leader

    def begin(self, work: Work) -> None:
        """Create a workload's pods, or the controller that makes them. Raises ApiRefused."""
        if work.bare:
            self.scene.create(work.pods())
        else:
            self.cluster.api.post(REPLICA_SETS, work.replica_set())

    def end(self, work: Work) -> None:
        """Delete a workload."""
        paths = [f"{PODS}/{name}" for name in work.pod_names()] if work.bare else [f"{REPLICA_SETS}/{work.name}"]
        for path in paths:
            self.cluster.api.delete(path, AT_ONCE)

    def pods(self, work: Work) -> list[Json]:
        """A workload's pods."""
        items: list[Json] = self.cluster.api.get(f"{PODS}?labelSelector=app%3D{work.name}")["items"]
        return items

    def running(self, work: Work) -> dict[str, Json]:
        """Those that run and are not on their way out, by name."""
        return {pod["metadata"]["name"]: pod for pod in self.pods(work) if runs(pod)}

    def absent(self, works: Iterable[Work]) -> str:
        """Who of them does not run, and what the operator last said of it: for a story that cannot go on."""
        found = []
        for work in works:
            for pod in self.pods(work):
                if not runs(pod):
                    name = pod["metadata"]["name"]
                    said = sorted(self.events_about(name), key=lambda event: str(event.get("lastTimestamp")))
                    words = "; ".join(f"{event['reason']}: {event['message']}" for event in said[-2:])
                    found.append(f"{name} is {pod['status'].get('phase')} ({words or 'no event'})")
            lacking = work.count - len(self.pods(work))
            found += [f"{lacking} pods of {work.name} were not created"] if lacking > 0 else []
        return "; ".join(found)

    def uids(self, works: Iterable[Work]) -> set[str]:
        """uids of the pods that run."""
        return {pod["metadata"]["uid"] for work in works for pod in self.running(work).values()}

    def let_go(self, pod_names: Iterable[str]) -> None:
        """Let evicted pods that take their time come to their end."""
        for name in pod_names:
            with suppress(ApiRefused):  # it may have ended by itself
                body = {"metadata": {"annotations": {LINGER_ANNOTATION: None}}}
                self.cluster.api.patch(f"{PODS}/{name}", body)

    def plans(self) -> list[Json]:
        """Plans that exist."""
        items: list[Json] = self.cluster.api.get(PLANS)["items"]
        return items

    def events_about(self, name: str) -> list[Json]:
        """The operator's events about a pod of this name, whether it still is or not."""
        return self.scene.events_of(name)

    def evicted(self, since: int) -> list[str]:
        """Pods whose eviction the API server accepted since a position of the audit log."""
        return [
            event.name
            for event in self.cluster.audit_events(since).events
            if (event.verb, event.subresource, event.user) == ("create", "eviction", USER) and event.code < 300
        ]

    def written(self, since: int) -> list[str]:
        """What the operator wrote since then, the Lease left out."""
        return [
            f"{event.verb} {event.resource}/{event.subresource}"
            for event in self.cluster.audit_events(since).events
            if event.user == USER and event.verb not in ("get", "list", "watch") and event.resource != "leases"
        ]

    def vgpu(self, *arguments: str) -> str:
        """What our command line prints. Raises DevclusterError with its own words."""
        url = f"http://127.0.0.1:{self.leader.http_port}"
        command = [sys.executable, "-m", "vgpu.cli", "--kubeconfig", str(self.cluster.kubeconfig())]
        environment = {"PYTHONPATH": str(ROOT / "operator"), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            [*command, "--operator-url", url, *arguments],
            env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise DevclusterError(f"kubectl vgpu {' '.join(arguments)}: {done.stderr.strip()[-500:]}")
        return done.stdout

    def manifest(self, work: Work) -> str:
        """The path of a file with a workload's first pod."""
        path = self.cluster.site.folder / f"{work.name}.yaml"
        path.write_text(yaml.safe_dump(work.pods()[0]))
        return str(path)


def runs(pod: Mapping[str, Any]) -> bool:
    """Whether a pod runs and nobody has asked it to go."""
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def show_sections(stage: Stage, sections: Iterable[Section]) -> None:
    """What our command line shows on a terminal."""
    for section in sections:
        if section.empty:
            continue
        for line in (section.title, *section.lines):
            if line:
                stage.say(line)
        if section.rows:
            stage.table(section.head, section.rows)


def open_play(cluster: Cluster, stage: Stage) -> Play:
    """Install and start everything, with queues and classes; comes back when pods can be placed."""
    scene = open_scene(cluster, stage)
    for name, value in CLASSES.items():
        cluster.api.post(
            "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value}
        )
    path = f"/apis/{names.API_VERSION}/{names.QUEUE_PLURAL}"
    for name, spec in QUEUES.items():
        body = {"apiVersion": names.API_VERSION, "kind": names.QUEUE_KIND, "metadata": {"name": name}}
        cluster.api.post(path, {**body, "spec": dict(spec)})
    stage.wait(
        lambda: len(found := scene.inventories()) == len(scene.nodes) and all(map(scene.is_ready, found)),
        f"{len(scene.nodes)} inventories to be Ready",
    )
    return Play(scene)
