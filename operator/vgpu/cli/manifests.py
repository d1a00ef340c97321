"""A file of manifests -> the pod that is asked about: it itself, or the template of what makes pods, and how many.

Text enters, a Pod's JSON values leave. Raises ConfigurationError that says what the file holds instead.
"""

from collections.abc import Iterable
from typing import Any

import yaml

from vgpu.errors import ConfigurationError

Manifest = dict[str, Any]
TEMPLATES = ("spec.template", "spec.jobTemplate.spec.template")
"""Where Deployments, ReplicaSets, StatefulSets and Jobs keep it, and where CronJobs do."""


def pods_of(text: str, source: str) -> tuple[Manifest, int]:
    """The pod of the only manifest in `text` that is or makes one, and how many of it there will be at once.
    `source` names the file in messages."""
    try:
        documents = [one for one in yaml.safe_load_all(text) if one is not None]
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{source} is neither YAML nor JSON: {error}") from error
    manifests = list(_single(documents))
    pods = [(pod, _copies(one)) for one in manifests if (pod := _pod(one)) is not None]
    if len(pods) == 1:
        return pods[0]
    kinds = ", ".join(sorted({_kind(manifest) for manifest in manifests})) or "nothing"
    if pods:
        raise ConfigurationError(
            f"{source} holds {len(pods)} manifests that make pods: ask for one (it holds: {kinds})"
        )
    known = f"known are Pod and what has a pod's template at {' or '.join(TEMPLATES)}"
    advice = f"{known}: of others ask for one of their pods"
    raise ConfigurationError(f"{source} holds no manifest that makes pods (it holds: {kinds}); {advice}")


def _kind(manifest: Manifest) -> str:
    """With the API where that tells something: a Job is Kubernetes' own, or Volcano's."""
    kind, api = str(manifest.get("kind", "no kind")), str(manifest.get("apiVersion", ""))
    return f"{kind} of {api.partition('/')[0]}" if "." in api.partition("/")[0] else kind


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


def _copies(manifest: Manifest) -> int:
    """Pods at once: replicas, or a Job's parallelism as far as there is work for it; 1 where neither is said."""
    spec = _at(manifest, "spec.jobTemplate.spec") or _at(manifest, "spec") or {}
    if manifest.get("kind") == "Pod":
        return 1
    said = spec.get("replicas", spec.get("parallelism", 1))
    work = spec.get("completions")
    copies = [one for one in (said, work) if isinstance(one, int) and not isinstance(one, bool)]
    return max(1, min(copies, default=1))


def _at(manifest: Manifest, path: str) -> Manifest | None:
    found: Any = manifest
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None
