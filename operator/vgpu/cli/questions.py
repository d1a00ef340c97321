"""What each command asks, and of whom. Arguments enter, JSON values or objects of the API server leave."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vgpu import names
from vgpu.api.preemption import GpuPreemption
from vgpu.api.queue import GpuQueue
from vgpu.cli.asking import Asking, Question
from vgpu.cli.manifests import Manifest, pods_of
from vgpu.core.preempt.plan_step import OVER
from vgpu.errors import ApiRefused, ConfigurationError, VgpuError
from vgpu.report.objects import Owed

Document = dict[str, Any]
DEFAULT_NAMESPACE = "default"
STANDARD_INPUT = Path("-")


async def what_if(asking: Asking, pod: str) -> Document:
    """About a pod that waits, NS/NAME."""
    return _document(await asking.operator(Question("/what-if", {"pod": pod, "output": "json"})))


async def what_if_created(asking: Asking, file: Path, namespace: str) -> Document:
    """About pods that do not exist: as the API server would store one, if it can be asked for a dry run."""
    pod, copies = pods_of(_read(file), str(file))
    metadata = pod.setdefault("metadata", {})
    if namespace or not metadata.get("namespace"):
        metadata["namespace"] = namespace or DEFAULT_NAMESPACE
    pod, notes = await _as_stored(asking, pod) if asking.connection is not None else (pod, [])
    body = json.dumps(pod).encode()
    params = {"output": "json"} | ({"copies": str(copies)} if copies > 1 else {})
    answer = _document(await asking.operator(Question("/what-if", params, body)))
    answer["notes"] = [*answer["notes"], *notes]
    return answer


async def explain(asking: Asking, pod: str) -> Document:
    """Why a pod waits."""
    return _document(await asking.operator(Question("/explain", {"pod": pod, "output": "json"})))


async def plans(asking: Asking, namespace: str) -> list[GpuPreemption]:
    """All plans, or those of one namespace."""
    scope = f"namespaces/{namespace}/" if namespace else ""
    path = f"/apis/{names.API_VERSION}/{scope}{names.PREEMPTION_PLURAL}"
    items = (await asking.api(Question(path))).get("items", ())
    return [GpuPreemption.model_validate(item) for item in items]


async def owed(asking: Asking, plans: Iterable[GpuPreemption]) -> Owed:
    """What is still owed for these plans, and what they wait for now. Only the operator knows: the plans say what
    was lost. Where it cannot be asked, all else is shown."""
    if all(plan.status is not None and plan.status.phase in OVER and not plan.status.debts for plan in plans):
        return Owed({})
    try:
        answer = _document(await asking.operator(Question("/debts")))
        pods = {(debt["plan"], debt["uid"]): int(debt["pods"]) for debt in answer["debts"]}
        waits = {str(plan): str(what) for plan, what in answer.get("waits", {}).items()}
        asked = {str(plan): int(pods) for plan, pods in answer.get("asked", {}).items()}
    except VgpuError as error:
        return Owed(note=f"What is still owed is not known: {error}")
    except (AttributeError, KeyError, TypeError, ValueError):
        return Owed(note="What is still owed is not known: the operator answers otherwise; is it of this version?")
    follows = "A replica that does not lead has answered: fewer may be owed." if not answer.get("leading") else ""
    return Owed(pods, follows, waits, asked)


async def queues(asking: Asking) -> list[GpuQueue]:
    """All queues."""
    items = (await asking.api(Question(f"/apis/{names.API_VERSION}/{names.QUEUE_PLURAL}"))).get("items", ())
    return [GpuQueue.model_validate(item) for item in items]


async def _as_stored(asking: Asking, pod: Manifest) -> tuple[Manifest, list[str]]:
    """What admission would make of it (its priority above all); a dry run stores nothing."""
    metadata = pod["metadata"]
    named = {key: value for key, value in metadata.items() if key != "name"}
    trial = {**pod, "metadata": {**named, "generateName": f"{metadata.get('name') or 'what-if'}-"}}
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods"
    try:
        stored = await asking.api(Question(path, {"dryRun": "All"}, json.dumps(trial).encode()))
    except ApiRefused as error:
        return pod, [f"the API server would refuse this pod: {error}"]
    stored["metadata"] = {**stored["metadata"], "name": metadata.get("name", "")}
    if not metadata.get("name"):
        stored["metadata"]["generateName"] = metadata.get("generateName", "what-if-")
    return stored, []


def _read(file: Path) -> str:
    try:
        return sys.stdin.read() if file == STANDARD_INPUT else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}") from error


def _document(body: bytes) -> Document:
    try:
        answer = json.loads(body)
    except ValueError as error:
        raise ConfigurationError(
            "what answered is no operator of this kind: its answer is not JSON; see --operator-url"
        ) from error
    assert isinstance(answer, dict)
    return answer
