"""Answers "what would happen": to a pod that waits, or to one that does not exist yet.

Enters: a pod's name or manifest. Leaves: JSON values made of a Preview. The state is frozen in one step of the
event loop, as the planner would gather it; what follows runs in another thread on values alone. Nothing is written
and nothing is kept. May not live here: decisions, words, HTTP.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from vgpu.controller.what_if_document import what_if_document
from vgpu.core.explain import notes_on
from vgpu.core.facts import PodFact
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.decision_world import NOTHING_LEARNT, Avoid, DecisionWorld
from vgpu.core.preempt.facts import Workload
from vgpu.core.preempt.guest import with_guest
from vgpu.core.preempt.preview import pods_before, preview
from vgpu.core.wanted import plural_s
from vgpu.errors import MalformedObject
from vgpu.kube.objects import Decoded


@dataclass(frozen=True, slots=True)
class WhatIfParts:
    """What a question is made of. `world` and `learned` are the planner's own; `together`: the pods that start
    with this one (it alone, or required members of its gang); `now_seconds`: of the clock that workloads bear."""

    ledger: Ledger
    queue_of: Callable[[PodFact], str]
    world: Callable[[], DecisionWorld]
    together: Callable[[DecisionWorld, str], Sequence[Workload]]
    learned: Callable[[str], Avoid]
    decode: Callable[[bytes], Decoded[PodFact]]
    now_seconds: Callable[[], int]
    scheduler_name: str
    leading: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class WrongQuestion:
    """Why there is no answer, and what to do; `status` is the HTTP status."""

    status: int
    message: str


@dataclass(frozen=True, slots=True)
class Asked:
    """One question with everything that its answer rests on. `guest`: a pod that does not exist, and its queue; it
    is asked about alone, and `pods` is empty."""

    world: DecisionWorld
    pods: tuple[Workload, ...]
    now_seconds: int
    avoid: Avoid = NOTHING_LEARNT
    notes: tuple[str, ...] = ()
    guest: tuple[PodFact, str] | None = None

    def answer(self) -> dict[str, Any]:
        """Works the answer out; takes as long as a decision, and more where the answer is no."""
        world, pods = self.world, self.pods
        if self.guest is not None:
            world = with_guest(world, *self.guest)
            pods = (world.workloads[self.guest[0].uid],)
        found = preview(world, pods, self.now_seconds, self.avoid)
        before = pods_before(world, pods[0])
        notes = self.notes
        if before:
            said = f"{before} pod{plural_s(before)} of higher place wait{'s' if before == 1 else ''} too"
            notes = (*notes, f"{said}: room is made for them first, which this answer leaves out")
        return what_if_document(found, self.now_seconds, notes)


class WhatIf:
    """Freezes the state for one question at a time."""

    def __init__(self, parts: WhatIfParts) -> None:
        self._parts = parts

    def about(self, namespace: str, name: str) -> Asked | WrongQuestion:
        """The question about a pod that exists."""
        pod = self._parts.ledger.find_pod(namespace, name)
        if pod is None:
            return WrongQuestion(404, f"no GPU pod {namespace}/{name} is known here")
        if pod.node or pod.ended or pod.terminating:
            state = f"bound to {pod.node}" if pod.node else "over or being deleted"
            return WrongQuestion(409, f"pod {namespace}/{name} is {state}: it waits for nothing; see /explain")
        refused = _never_placed(pod)
        if refused is not None:
            return refused
        world = self._parts.world()
        if pod.uid not in world.workloads:
            return WrongQuestion(503, f"pod {namespace}/{name} has only just been seen: ask again")
        alone, notes = world.workloads[pod.uid], self._notes(pod, world)
        pods = tuple(self._parts.together(world, pod.uid))
        if not pods and alone.gang is not None and alone.gang.minimum > 1:
            notes = (*notes, "its gang could not start now; it is asked about alone")
        now, learned = self._parts.now_seconds(), self._parts.learned(pod.uid)
        return Asked(world, pods or (alone,), now, learned, notes)

    def about_manifest(self, raw: bytes) -> Asked | WrongQuestion:
        """The question about a pod that does not exist; `raw` is its manifest as JSON."""
        now = self._parts.now_seconds()
        manifest = _manifest(raw)
        if isinstance(manifest, WrongQuestion):
            return manifest
        try:
            pod = self._parts.decode(json.dumps(_as_if_created(manifest, now)).encode()).fact
        except MalformedObject as error:
            return WrongQuestion(400, f"the manifest cannot be read: {error}")
        refused = _never_placed(pod)
        if refused is not None:
            return refused
        world = self._parts.world()
        notes = (*_notes_on_manifest(manifest), *_notes_on_gang(pod), *self._notes(pod, world))
        return Asked(world, (), now, notes=notes, guest=(pod, self._parts.queue_of(pod)))

    def _notes(self, pod: PodFact, world: DecisionWorld) -> tuple[str, ...]:
        notes = notes_on(pod, self._parts.scheduler_name)
        notes += [
            f"plan {hold.plan} holds cards for it already; this is what would be decided anew"
            for hold, _ in world.plans
            if pod.uid in hold.uids
        ]
        if not self._parts.leading():
            notes.append("this replica does not lead: what plans have taught the leader is not known here")
        return tuple(notes)


def _never_placed(pod: PodFact) -> WrongQuestion | None:
    named = f"{pod.namespace}/{pod.name}"
    if not pod.wants_gpus:
        return WrongQuestion(400, f"pod {named} asks for no GPU")
    if pod.request is None:
        why = pod.refusal.message if pod.refusal else "what it asks for is not understood"
        return WrongQuestion(400, f"pod {named} can never be placed: {why}")
    return None


def _manifest(raw: bytes) -> dict[str, Any] | WrongQuestion:
    try:
        manifest = json.loads(raw)
    except (ValueError, RecursionError) as error:
        return WrongQuestion(400, f"the body is no JSON: {error}; `kubectl vgpu what-if -f FILE` takes YAML")
    if not isinstance(manifest, dict) or manifest.get("kind", "Pod") != "Pod":
        kind = manifest.get("kind", "no kind") if isinstance(manifest, dict) else type(manifest).__name__
        return WrongQuestion(400, f"expected one Pod, not {kind}; of a Job or Deployment send its pod template")
    if not isinstance(manifest.get("metadata", {}), dict) or not isinstance(manifest.get("spec"), dict):
        return WrongQuestion(400, "the manifest of a Pod has metadata and spec, both maps")
    return manifest


def _as_if_created(manifest: dict[str, Any], now_seconds: int) -> dict[str, Any]:
    """What the API server and nobody else would have added by now: it waits, and was created this moment."""
    metadata = dict(manifest.get("metadata", {}))
    metadata.setdefault("namespace", "default")
    metadata["name"] = metadata.get("name") or f"{metadata.get('generateName', 'what-if-')}?"
    metadata["uid"] = f"what-if-{uuid4()}"
    metadata["creationTimestamp"] = datetime.fromtimestamp(now_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    spec = {key: value for key, value in manifest["spec"].items() if key != "nodeName"}
    return {"metadata": metadata, "spec": spec}


def _notes_on_manifest(manifest: dict[str, Any]) -> tuple[str, ...]:
    spec = manifest["spec"]
    name = spec.get("priorityClassName")
    if name and "priority" not in spec:
        return (
            f"priority 0 is assumed: the value of PriorityClass {name} is not known here; state spec.priority",
        )
    return ()


def _notes_on_gang(pod: PodFact) -> tuple[str, ...]:
    group = pod.terms.group if pod.terms is not None else None
    if group is None:
        return ()
    return (f"it is asked about alone, without the other pods of its group {group.namespace}/{group.name}",)
