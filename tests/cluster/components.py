"""Optional parts of manifests/ on a cluster, rendered as a user's own kustomization would render them."""

import os
from pathlib import Path
from typing import Any

import yaml

from devcluster.access import ClusterAccess
from devcluster.product import MANIFESTS, PROCESSES, rendered


def render(cluster: ClusterAccess, folder: Path, *components: str) -> list[dict[str, Any]]:
    """The base with these components; `folder` is an empty one, for the kustomization."""
    above = os.path.relpath(MANIFESTS, folder)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{above}/base"],
        "components": [f"{above}/components/{name}" for name in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return rendered(cluster, str(folder))


def install_components(cluster: ClusterAccess, folder: Path, *components: str) -> None:
    """Give the rights and policies of these components, on a cluster where the product is installed."""
    documents = [item for item in render(cluster, folder, *components) if item["kind"] not in PROCESSES]
    cluster.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(documents))


def remove_rights(cluster: ClusterAccess, *components: str) -> None:
    """Take the rights of these components away again; policies go with all others."""
    for name in components:
        for kind in ("clusterrolebinding", "clusterrole"):
            cluster.kubectl("delete", kind, f"vgpu-operator-{name}", "--ignore-not-found")
