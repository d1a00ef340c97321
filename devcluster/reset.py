"""Gives a shared cluster back the state of a new one without restarting it.

Enters: a client with an administrator's rights. Deletes what tests make, keeps namespaces and what the control
plane itself made. May not live here: starting or stopping anything.
"""

from collections.abc import Iterator

from devcluster.api import MERGE_PATCH, ApiClient, Json
from devcluster.errors import ApiRefused

NAMESPACED = (  # owners before what they own, or they would make it anew
    ("apis/apps/v1", "deployments"),
    ("apis/apps/v1", "statefulsets"),
    ("apis/apps/v1", "daemonsets"),
    ("apis/apps/v1", "replicasets"),
    ("apis/batch/v1", "jobs"),
    ("apis/policy/v1", "poddisruptionbudgets"),
    ("api/v1", "pods"),
    ("apis/events.k8s.io/v1", "events"),
)
# In namespaces of the components under test also their configuration and their Leases.
PRODUCT_NAMESPACE_PREFIX = "vgpu-"
PRODUCT = (
    ("apis/coordination.k8s.io/v1", "leases"),
    ("api/v1", "secrets"),
    ("apis/discovery.k8s.io/v1", "endpointslices"),
)
ADMISSION = "apis/admissionregistration.k8s.io/v1"
CLUSTER_WIDE = (
    (ADMISSION, "validatingadmissionpolicybindings"),
    (ADMISSION, "validatingadmissionpolicies"),
    (ADMISSION, "mutatingadmissionpolicybindings"),
    (ADMISSION, "mutatingadmissionpolicies"),
    ("api/v1", "nodes"),
)
NOW: Json = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
NOT_FOUND = 404
CONFLICTS = (404, 409)


def clear(api: ApiClient) -> None:
    """Delete the objects; pods of simulated nodes go at once. Raises ApiRefused."""
    for group, kind in CLUSTER_WIDE[:-1]:
        api.delete(f"/{group}/{kind}", NOW)
    namespaces = {str(item["metadata"]["name"]) for item in api.get("/api/v1/namespaces")["items"]}
    for group, kind in NAMESPACED:
        _delete_everywhere(api, group, kind)
    _free_pods(api)
    for collection in _custom_collections(api):
        _delete_each(api, collection)
    for namespace in namespaces:
        if namespace.startswith(PRODUCT_NAMESPACE_PREFIX):
            for group, kind in PRODUCT:
                api.delete(f"/{group}/namespaces/{namespace}/{kind}", NOW)
    api.delete("/api/v1/nodes", NOW)


def sweep(api: ApiClient) -> bool:
    """Delete pods that a controller made while its owner object was going; whether no pod and no node is left."""
    _delete_everywhere(api, "api/v1", "pods")
    return not any(api.get(f"/api/v1/{kind}?limit=1")["items"] for kind in ("pods", "nodes"))


def _delete_everywhere(api: ApiClient, group: str, kind: str) -> None:
    namespaces = {str(item["metadata"]["namespace"]) for item in api.get(f"/{group}/{kind}")["items"]}
    for namespace in sorted(namespaces):
        api.delete(f"/{group}/namespaces/{namespace}/{kind}", NOW)


def _free_pods(api: ApiClient) -> None:
    """Take finalizers off pods, which would keep them."""
    for pod in api.get("/api/v1/pods")["items"]:
        if pod["metadata"].get("finalizers"):
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
            _patch_if_there(api, path)


def _custom_collections(api: ApiClient) -> Iterator[str]:
    for crd in api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]:
        spec = crd["spec"]
        version = next(item["name"] for item in spec["versions"] if item["storage"])
        yield f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"


def _delete_each(api: ApiClient, collection: str) -> None:
    """Delete the objects of a custom kind, finalizers and all, in whatever namespace they are."""
    base, _, plural = collection.rpartition("/")
    for item in api.get(collection)["items"]:
        namespace = item["metadata"].get("namespace")
        scope = f"{base}/namespaces/{namespace}/{plural}" if namespace else collection
        path = f"{scope}/{item['metadata']['name']}"
        if item["metadata"].get("finalizers"):
            _patch_if_there(api, path)
        try:
            api.delete(path, NOW)
        except ApiRefused as refusal:
            if refusal.code != NOT_FOUND:
                raise


def _patch_if_there(api: ApiClient, path: str) -> None:
    try:
        api.patch(path, {"metadata": {"finalizers": None}}, MERGE_PATCH)
    except ApiRefused as refusal:
        if refusal.code not in CONFLICTS:
            raise
