"""What can be asked of any cluster, own or existing: kubectl, kubeconfigs, tokens, nodes, a clean state.

Enters: where the API server is and an administrator's token. May not live here: processes of the cluster.
"""

import os
import ssl
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster import nodes, reset
from devcluster.api import ApiClient, Endpoint, Json
from devcluster.credentials import write_kubeconfig
from devcluster.errors import ApiRefused, KubectlFailed
from devcluster.waiting import wait_until

KUBECTL_TIMEOUT_SECONDS = 60.0
CONFLICT = 409


@dataclass(frozen=True, slots=True)
class Target:
    """An API server, its authority's certificate (PEM), an administrator's token, the kubectl to use."""

    server: str
    ca: bytes
    admin_token: str
    kubectl: Path


class ClusterAccess:
    """The part of a cluster's interface that needs nothing but its API server."""

    def __init__(self, target: Target, folder: Path) -> None:
        self._target = target
        self._folder = folder
        self._kubeconfigs: dict[str | None, Path] = {}
        self.api = self.client()

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self._target.server

    def client(self, token: str | None = None) -> ApiClient:
        """A client of the API as the bearer of a token, as the administrator without one."""
        tls = ssl.create_default_context(cadata=self._target.ca.decode())
        return ApiClient(Endpoint(self._target.server, tls, token or self._target.admin_token))

    def kubeconfig(self, token: str | None = None) -> Path:
        """A kubeconfig file for the bearer of a token, for the administrator without one."""
        if token not in self._kubeconfigs:
            name = "admin" if token is None else f"token-{len(self._kubeconfigs)}"
            path = self._folder / f"{name}.kubeconfig"
            write_kubeconfig(
                path, server=self._target.server, ca=self._target.ca, token=token or self._target.admin_token
            )
            self._kubeconfigs[token] = path
        return self._kubeconfigs[token]

    def kubectl(self, *arguments: str, input: str | None = None, token: str | None = None) -> str:
        """Run kubectl and hand back what it printed. Raises KubectlFailed when it ends with an error."""
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig(token)),
            "KUBECACHEDIR": str(self._folder / "kube"),
        }
        result = subprocess.run(
            [self._target.kubectl, *arguments], input=input or "", env=environment,
            capture_output=True, text=True, timeout=KUBECTL_TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
        if result.returncode != 0:
            raise KubectlFailed(result.returncode, result.stdout, result.stderr)
        return result.stdout

    def token_for_service_account(self, namespace: str, name: str, pod: str | None = None) -> str:
        """A real token of a service account, bound to a pod that runs as it where one is named.

        Namespace and account are made where they are missing. Raises ApiRefused, for example when the pod's
        spec.serviceAccountName is another.
        """
        self.ensure_namespace(namespace)
        base = f"/api/v1/namespaces/{namespace}"
        self._ensure(f"{base}/serviceaccounts", {"metadata": {"name": name}})
        spec: dict[str, Any] = {"expirationSeconds": 24 * 3600}
        if pod is not None:
            uid = self.api.get(f"{base}/pods/{pod}")["metadata"]["uid"]
            spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid}
        answer = self.api.post(f"{base}/serviceaccounts/{name}/token", {"spec": spec})
        return str(answer["status"]["token"])

    def ensure_namespace(self, name: str) -> None:
        """Make the namespace where it is missing."""
        self._ensure("/api/v1/namespaces", {"metadata": {"name": name}})

    def create_nodes(
        self, count: int, shape: nodes.NodeShape | None = None, *, prefix: str = "node-", first: int = 0
    ) -> list[str]:
        """Make simulated nodes PREFIX0000 and so on, Ready from the start; hands back their names."""
        names = [f"{prefix}{number:04d}" for number in range(first, first + count)]
        nodes.create_nodes(self.api, names, shape or nodes.NodeShape())
        return names

    def create_all(self, path: str, objects: Sequence[Json]) -> None:
        """Create many objects of one collection in parallel. Raises ApiRefused for the first that is refused."""
        nodes.create_all(self.api, path, objects)

    def set_allocatable(self, node: str, resource: str, value: int) -> None:
        """Set how much of a resource the node says it can hand out."""
        nodes.set_allocatable(self.api, node, resource, value)

    def set_ready(self, node: str, ready: bool) -> None:
        """Set the node's Ready condition."""
        nodes.set_ready(self.api, node, ready)

    def clear(self) -> None:
        """Delete what tests make: workloads, pods, nodes, objects of custom kinds, admission policies."""
        reset.clear(self.api)
        self.wait_until(lambda: reset.sweep(self.api), "pods and nodes to be gone")

    def wait_until(self, condition: Callable[[], bool], what: str, timeout_seconds: float = 30.0) -> None:
        """Poll until the condition holds. Raises StartFailed naming what was waited for."""
        wait_until(condition, what, timeout_seconds)

    @contextmanager
    def namespace(self, name: str) -> Iterator[str]:
        """A namespace that is deleted at the end of the block."""
        self.ensure_namespace(name)
        yield name
        self.api.delete(f"/api/v1/namespaces/{name}")

    def apply(self, paths: Sequence[Path]) -> str:
        """Apply manifests with kubectl and hand back what it printed."""
        files = [part for path in paths for part in ("-f", str(path))]
        return self.kubectl("apply", "--server-side", *files)

    def _ensure(self, collection: str, body: Json) -> None:
        try:
            self.api.post(collection, body)
        except ApiRefused as refusal:
            if refusal.code != CONFLICT:
                raise
