"""A cluster that somebody else runs, named by KUBECONFIG, in place of an own one.

Used only when USE_VARIABLE is 1 as well: a person's KUBECONFIG alone must never let tests loose on a cluster.
"""

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from devcluster.access import ClusterAccess, Target
from devcluster.build import ensure_binaries
from devcluster.errors import NotSupported
from devcluster.folders import ClusterFolder

USE_VARIABLE = "VGPU_USE_EXISTING_CLUSTER"
OWN_ONLY = frozenset({
    "start_apiserver", "stop_apiserver", "restart_apiserver", "start_scheduler", "stop_scheduler", "start_kwok",
    "start_controller_manager", "start_forwarder", "start_process", "end_process", "pause", "resume", "usage",
    "compact_etcd", "forget_history", "audit_events", "processes", "site", "expose",
})  # fmt: skip


def existing_is_wanted() -> bool:
    """Whether the environment names an existing cluster and allows its use."""
    return bool(os.environ.get("KUBECONFIG")) and os.environ.get(USE_VARIABLE) == "1"


class ExistingCluster(ClusterAccess):
    """The same questions, put to a cluster of somebody else's. Takes tokens only, no certificates or plugins."""

    def __init__(self) -> None:
        found = shutil.which("kubectl")
        kubectl = Path(found) if found else ensure_binaries().path("kubectl")
        target = read_target(kubectl)
        self._own_folder = ClusterFolder()
        super().__init__(target, self._own_folder.path)

    def __enter__(self) -> "ExistingCluster":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._own_folder.close()

    def clear(self) -> NoReturn:
        """Never: the nodes and pods here are not ours to delete."""
        raise NotSupported("an existing cluster is not cleared; use namespaces of your own")

    def __getattr__(self, name: str) -> NoReturn:
        if name in OWN_ONLY:
            raise NotSupported(f"{name} needs a cluster of our own; unset {USE_VARIABLE}")
        raise AttributeError(name)


def read_target(kubectl: Path) -> Target:
    """Server, authority and token of KUBECONFIG's current context. Raises NotSupported where it has no token."""
    command = [str(kubectl), "config", "view", "--raw", "--minify", "--flatten", "-o", "json"]
    answer = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if answer.returncode != 0:
        raise NotSupported(f"KUBECONFIG cannot be read: {answer.stderr.strip()}")
    content: dict[str, Any] = json.loads(answer.stdout)
    cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
    if "token" not in user or "certificate-authority-data" not in cluster:
        raise NotSupported("KUBECONFIG must hold a token and the certificate authority of its cluster")
    ca = base64.b64decode(cluster["certificate-authority-data"])
    return Target(cluster["server"], ca, user["token"], kubectl)
