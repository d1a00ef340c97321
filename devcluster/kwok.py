"""What kwok plays: the kubelets of nodes that carry SIMULATED_LABEL.

Leaves: the stage file. A simulated kubelet makes a bound pod Running, completes it when COMPLETE_ANNOTATION asks
for it, and removes it when it is being deleted (a Job's pod fails first). It never writes a node that has a Ready
condition, so allocatable belongs to whoever set it, and it sends no heartbeats.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SIMULATED_LABEL = "vgpu.dev/simulated"
# On a running pod: `Succeeded` or `Failed` ends its containers that way.
COMPLETE_ANNOTATION = "devcluster.vgpu.dev/complete"
# On a pod at its creation: `true` leaves it bound but never admitted, as a kubelet does that hangs.
HOLD_ANNOTATION = "devcluster.vgpu.dev/hold"
# On a pod: `true` keeps it terminating, as processes do that do not end, until the annotation is taken away.
LINGER_ANNOTATION = "devcluster.vgpu.dev/linger"

_ALIVE = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}
_TERMINATING = {"key": ".metadata.deletionTimestamp", "operator": "Exists"}

_NODE_READY = """
{{ $now := Now }}
conditions:
- type: Ready
  status: "True"
  reason: Simulated
  message: set by kwok
  lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $now | Quote }}
{{ if not .status.allocatable }}
allocatable: {cpu: "64", memory: 512Gi, pods: "250"}
capacity: {cpu: "64", memory: 512Gi, pods: "250"}
{{ end }}
"""

_POD_RUNNING = """
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
podIP: {{ PodIPWith .spec.nodeName (or .spec.hostNetwork false) .metadata.uid .metadata.name .metadata.namespace }}
conditions:
{{ range $type := list "PodReadyToStartContainers" "Initialized" "ContainersReady" "Ready" }}
- {type: {{ $type }}, status: "True", lastTransitionTime: {{ $now | Quote }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
{{ if .spec.initContainers }}
initContainerStatuses:
{{ range .spec.initContainers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: true
  restartCount: 0
  {{ if eq (or .restartPolicy "") "Always" }}
  started: true
  state: {running: {startedAt: {{ $now | Quote }}}}
  {{ else }}
  state:
    terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}
  {{ end }}
{{ end }}
{{ end }}
"""

_POD_ENDED = """
{{ $now := Now }}
{{ $phase := PHASE }}
{{ $failed := eq $phase "Failed" }}
phase: {{ $phase }}
conditions:
- {type: Ready, status: "False", reason: PodCompleted, lastTransitionTime: {{ $now | Quote }}}
- {type: ContainersReady, status: "False", reason: PodCompleted, lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: false
  started: false
  restartCount: 0
  state:
    terminated:
      exitCode: {{ if $failed }}1{{ else }}0{{ end }}
      reason: {{ if $failed }}Error{{ else }}Completed{{ end }}
      finishedAt: {{ $now | Quote }}
{{ end }}
"""
_AS_ASKED = f'index .metadata.annotations "{COMPLETE_ANNOTATION}"'


def write_stages(path: Path) -> Path:
    """Write the stage file for kwok's --config."""
    stages = [
        _stage("node-ready", "Node", [_node_not_ready()], {"statusTemplate": _NODE_READY}),
        _stage(
            "pod-running",
            "Pod",
            [_ALIVE, _phase("Pending"), _unset(HOLD_ANNOTATION)],
            {"statusTemplate": _POD_RUNNING},
        ),
        _stage(
            "pod-ended",
            "Pod",
            [_ALIVE, _phase("Running"), _asked_to_end()],
            {"statusTemplate": _POD_ENDED.replace("PHASE", _AS_ASKED)},
        ),
        # A Job counts its pods' ends: it needs to see them end before they are gone.
        _stage(
            "job-pod-stopped",
            "Pod",
            [_TERMINATING, _phase("Running"), _unset(LINGER_ANNOTATION), _of_a_job()],
            {"statusTemplate": _POD_ENDED.replace("PHASE", '"Failed"')},
            weight=1,
        ),
        _stage("pod-gone", "Pod", [_TERMINATING, _unset(LINGER_ANNOTATION)], {"delete": True}),
    ]
    path.write_text("\n---\n".join(json.dumps(stage, indent=1) for stage in stages))
    return path


def _stage(
    name: str, kind: str, selector: Sequence[dict[str, Any]], effect: dict[str, Any], *, weight: int = 0
) -> dict[str, Any]:
    """Of several stages that an object is ready for, one with a weight comes first."""
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": list(selector)},
            "weight": weight,
            "next": effect,
        },
    }


def _phase(phase: str) -> dict[str, Any]:
    return {"key": ".status.phase", "operator": "In", "values": [phase]}


def _unset(annotation: str) -> dict[str, Any]:
    return {"key": f'.metadata.annotations["{annotation}"]', "operator": "NotIn", "values": ["true"]}


def _asked_to_end() -> dict[str, Any]:
    key = f'.metadata.annotations["{COMPLETE_ANNOTATION}"]'
    return {"key": key, "operator": "In", "values": ["Succeeded", "Failed"]}


def _of_a_job() -> dict[str, Any]:
    return {"key": ".metadata.ownerReferences.[].kind", "operator": "In", "values": ["Job"]}


def _node_not_ready() -> dict[str, Any]:
    # Only a node without any Ready condition is brought up: one that was set to not ready on purpose stays so.
    return {"key": '.status.conditions.[] | select(.type == "Ready")', "operator": "DoesNotExist"}
