"""The product's own manifests on a development cluster: what a run needs of them, from the files that users apply.

Enters: a cluster. Leaves: CRDs, rights and admission policies in force; kube-scheduler's configuration as a file.
Deployments, the DaemonSet and the scheduler's ConfigMap are left out: whoever runs it starts the processes.
This module, operators and demo are the only ones of the package that know the product's names.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from devcluster import ApiRefused, Cluster
from devcluster.access import ClusterAccess
from vgpu import names

ROOT = Path(__file__).resolve().parents[1]
MANIFESTS = ROOT / "manifests"
CRDS = ROOT / "crds"
PROCESSES = frozenset({"Deployment", "DaemonSet", "ConfigMap"})
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICIES = (
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "mutatingadmissionpolicies",
)
KINDS = (names.INVENTORY_PLURAL, names.QUEUE_PLURAL, names.PREEMPTION_PLURAL)
SCHEDULER_CONFIG = "vgpu-scheduler-config"


def rendered(cluster: ClusterAccess, overlay: str = "") -> list[dict[str, Any]]:
    """All documents of manifests/, or of one of its overlays, as kustomize renders them."""
    text = cluster.kubectl("kustomize", str(MANIFESTS / overlay))
    return [document for document in yaml.safe_load_all(text) if document]


def prepare(cluster: ClusterAccess) -> None:
    """Apply Namespace and CRDs, which come before all else, and wait until every kind of ours is served."""
    cluster.apply([MANIFESTS / "base" / "namespace.yaml", CRDS])
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
    cluster.wait_until(lambda: all(is_served(cluster, kind) for kind in KINDS), "the custom kinds to be served")


def install(cluster: ClusterAccess) -> None:
    """Apply Namespace, CRDs, accounts, rights and admission policies, and wait until the policies are in force."""
    prepare(cluster)
    documents = [item for item in rendered(cluster) if item["kind"] not in PROCESSES]
    cluster.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(documents))
    wait_in_force(cluster)


def wait_in_force(cluster: ClusterAccess) -> None:
    """Wait until the admission policies that were applied act."""
    cluster.wait_until(lambda: all(_in_force(cluster)), "the admission policies to be in force")


def remove_policies(cluster: ClusterAccess) -> None:
    """Delete the admission policies and wait until none is in force any more."""
    for kind in POLICIES:
        cluster.api.delete(f"{ADMISSION}/{kind}", {"gracePeriodSeconds": 0})
    cluster.wait_until(lambda: not any(_in_force(cluster)), "the admission policies to be gone")


def scheduler_config(
    cluster: Cluster,
    extender_url: str,
    secrets_dir: Path,
    *,
    overlay: str = "",
    percentage_of_nodes: int | None = None,
    leader_elect: bool = False,
) -> Path:
    """kube-scheduler's configuration as manifests/ ship it, for `Cluster.start_scheduler`.

    The URL and the folder of ca.crt, tls.crt and tls.key are replaced; the certificate is still checked against
    the Service's name. One scheduler needs no Lease, so leader election is off unless asked for.
    """
    [source] = [
        item
        for item in rendered(cluster, overlay)
        if item["kind"] == "ConfigMap" and item["metadata"]["name"].startswith(SCHEDULER_CONFIG)
    ]
    config = yaml.safe_load(source["data"]["config.yaml"])
    config["leaderElection"]["leaderElect"] = leader_elect
    if percentage_of_nodes is not None:
        config["percentageOfNodesToScore"] = percentage_of_nodes
    [extender] = config["extenders"]
    extender["urlPrefix"] = extender_url
    extender["tlsConfig"] = {
        "serverName": f"{names.EXTENDER_SERVICE}.{names.NAMESPACE}.svc",
        **{key: str(secrets_dir / Path(path).name) for key, path in extender["tlsConfig"].items()},
    }
    path = cluster.site.folder / "vgpu-scheduler-config.yaml"
    path.write_text(json.dumps(config, indent=1))
    return path


def is_served(cluster: ClusterAccess, kind: str) -> bool:
    """Whether a kind of ours, by its plural name, can be listed. Raises ApiRefused.

    An established kind may still answer 404 or "storage is (re)initializing" for a moment.
    """
    try:
        cluster.api.get(f"/apis/{names.API_VERSION}/{kind}")
    except ApiRefused as refusal:
        if refusal.code in (404, 429):
            return False
        raise
    return True


def _in_force(cluster: ClusterAccess) -> list[bool]:
    """Whether each kind of policy acts, asked by requests that change nothing."""
    return [_pods_are_routed(cluster), _annotations_are_guarded(cluster), _status_is_guarded(cluster)]


def _probe_pod(**metadata: Any) -> dict[str, Any]:
    limits = {names.HAMI_NUMBER: "1"}
    container = {"name": "main", "image": "none", "resources": {"limits": limits}}
    return {"metadata": {"name": "policy-probe", **metadata}, "spec": {"containers": [container]}}


def _pods_are_routed(cluster: ClusterAccess) -> bool:
    try:
        pod = cluster.api.post("/api/v1/namespaces/default/pods?dryRun=All", _probe_pod())
    except ApiRefused:
        return False
    return bool(pod["spec"]["schedulerName"] == names.SCHEDULER_NAME)


def _annotations_are_guarded(cluster: ClusterAccess) -> bool:
    pod = _probe_pod(annotations={names.WAKE_ANNOTATION: "1"})
    return _is_refused(cluster, "POST", "/api/v1/namespaces/default/pods?dryRun=All", pod)


def _status_is_guarded(cluster: ClusterAccess) -> bool:
    path = f"/apis/{names.API_VERSION}/{names.QUEUE_PLURAL}/default/status?dryRun=All"
    return _is_refused(cluster, "PATCH", path, {"status": {"pendingPods": 1}})


def _is_refused(cluster: ClusterAccess, method: str, path: str, body: dict[str, Any]) -> bool:
    try:
        if method == "POST":
            cluster.api.post(path, body)
        else:
            cluster.api.patch(path, body)
    except ApiRefused as refusal:
        return "vgpu operator" in refusal.message
    return False
