"""A file of manifests -> the one pod that is asked about: it itself, or the template of what makes pods.

Text enters, a Pod's JSON values leave. Raises ConfigurationError that says what the file holds instead.
"""

from collections.abc import Iterable
from typing import Any

import yaml

from vgpu.errors import ConfigurationError

Manifest = dict[str, Any]
TEMPLATES = ("spec.template", "spec.jobTemplate.spec.template")
"""Where Deployments, ReplicaSets, StatefulSets and Jobs keep it, and where CronJobs do."""


def pod_of(text: str, source: str) -> Manifest:
    """The pod of the only manifest in `text` that is or makes one. `source` names the file in messages."""
    try:
        documents = [one for one in yaml.safe_load_all(text) if one is not None]
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{source} is neither YAML nor JSON: {error}") from error
    manifests = list(_single(documents))
    pods = [pod for manifest in manifests if (pod := _pod(manifest)) is not None]
    if len(pods) == 1:
        return pods[0]
    kinds = ", ".join(sorted({str(manifest.get("kind", "no kind")) for manifest in manifests})) or "nothing"
    problem = "no manifest that makes pods" if not pods else f"{len(pods)} manifests that make pods: ask for one"
    raise ConfigurationError(f"{source} holds {problem} (it holds: {kinds})")


def _single(documents: Iterable[Any]) -> Iterable[Manifest]:
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == "List":
            yield from _single(document.get("items") or ())
        elif isinstance(document, dict):
            yield document


def _pod(manifest: Manifest) -> Manifest | None:
    if manifest.get("kind") == "Pod":
        return manifest
    template = next((found for path in TEMPLATES if (found := _at(manifest, path)) is not None), None)
    if template is None or not isinstance(template.get("spec"), dict):
        return None
    own, owner = template.get("metadata") or {}, manifest.get("metadata") or {}
    metadata = {**own, "generateName": f"{owner.get('name', 'pod')}-"}
    if owner.get("namespace"):
        metadata["namespace"] = owner["namespace"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def _at(manifest: Manifest, path: str) -> Manifest | None:
    found: Any = manifest
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None
