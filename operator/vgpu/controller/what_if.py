"""Answers "what would happen": to a pod that waits, or to one that does not exist yet.

Enters: a pod's name or manifest. Leaves: JSON values made of a Preview. The state is frozen in one step of the
event loop, as the planner would gather it; what follows runs in another thread on values alone. Nothing is written
and nothing is kept. May not live here: decisions, words, HTTP.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import uuid4

from vgpu.controller.what_if_asked import Asked, Way, in_gang, one_by_one, with_coming
from vgpu.core.explain import notes_on
from vgpu.core.facts import PodFact
from vgpu.core.ledger import Ledger
from vgpu.core.preempt.decision_world import Avoid, DecisionWorld
from vgpu.core.preempt.gang_book import ALONE, GangBook, GroupTerms
from vgpu.core.preempt.gang_state import GangState
from vgpu.core.preempt.guest import Guests
from vgpu.errors import MalformedObject
from vgpu.kube.objects import Decoded

MOST_COPIES = 1000
"""So many equal pods may be asked about at once."""


@dataclass(frozen=True, slots=True)
class WhatIfParts:
    """What a question is made of. `world` and `learned` are the planner's own; `gangs`: how gangs stand, `groups`:
    what they mean; `now_seconds`: of the clock that workloads bear."""

    ledger: Ledger
    queue_of: Callable[[PodFact], str]
    world: Callable[[], DecisionWorld]
    gangs: "Gangs"
    groups: GangBook
    learned: Callable[[str], Avoid]
    decode: Callable[[bytes], Decoded[PodFact]]
    now_seconds: Callable[[], int]
    scheduler_name: str
    leading: Callable[[], bool]


class Gangs(Protocol):
    """What is asked about gangs."""

    def state(self, key: str) -> GangState | None:
        """The gang now; None when it has no pods."""

    def state_of(self, uid: str) -> GangState | None:
        """The state of the pod's gang; None for a pod of none, or of one whose pods start one by one."""


@dataclass(frozen=True, slots=True)
class WrongQuestion:
    """Why there is no answer, and what to do; `status` is the HTTP status."""

    status: int
    message: str


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
        gang = self._parts.gangs.state_of(pod.uid)
        way = one_by_one((pod.uid,)) if gang is None else in_gang(gang, (pod,))
        if any(uid not in world.workloads for uid in way.uids):
            return WrongQuestion(503, f"the gang of {namespace}/{name} has only just been seen: ask again")
        now, learned = self._parts.now_seconds(), self._parts.learned(pod.uid)
        return Asked(world, way, now, learned, self._notes(pod, world))

    def about_manifest(self, raw: bytes, copies: int = 1) -> Asked | WrongQuestion:
        """The question about a pod that does not exist, or so many equal ones; `raw` is its manifest as JSON."""
        now = self._parts.now_seconds()
        manifest = _manifest(raw)
        if isinstance(manifest, WrongQuestion):
            return manifest
        if not 1 <= copies <= MOST_COPIES:
            return WrongQuestion(400, f"copies is at least 1 and at most {MOST_COPIES}, not {copies}")
        try:
            pod = self._parts.decode(json.dumps(_as_if_created(manifest, now)).encode()).fact
        except MalformedObject as error:
            return WrongQuestion(400, f"the manifest cannot be read: {error}")
        refused = _never_placed(pod)
        if refused is not None:
            return refused
        world = self._parts.world()
        notes = (*_notes_on_manifest(manifest), *self._notes(pod, world))
        pods = _copies(pod, copies)
        terms, way = self._group(pods)
        guests = Guests(pods, self._parts.queue_of(pod), terms)
        return Asked(world, way, now, self._parts.learned(pod.uid), notes, guests)

    def _group(self, pods: tuple[PodFact, ...]) -> tuple[GroupTerms, Way]:
        """What their group means, and how they are asked about: with those of it who are there."""
        said = pods[0].terms
        if said is None or said.group is None:
            return ALONE, one_by_one([pod.uid for pod in pods])
        terms = self._parts.groups.would_mean(said.group, said.group_minimum)
        if terms.gang is None or (terms.gang.known and terms.gang.minimum <= 1):
            return terms, one_by_one([pod.uid for pod in pods])
        there = self._parts.gangs.state(said.group.key)
        return terms, in_gang(with_coming(there, GangState(terms.gang, waiting=pods)), pods)

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


def _copies(pod: PodFact, copies: int) -> tuple[PodFact, ...]:
    """So many equal pods, each with a name and uid of its own."""
    if copies == 1:
        return (pod,)
    return tuple(
        replace(pod, uid=f"{pod.uid}-{number:04}", name=f"{pod.name}{number}") for number in range(1, copies + 1)
    )
