"""Recovery on a small cluster in memory: a ledger, a roster, a writer that remembers."""

from dataclasses import dataclass, field, replace
from typing import Any

from tests.controller.cluster_facts import CARD_MIB, bound, ledger_of, pending
from tests.controller.kubernetes_json import Json, container_json, encode, pod_json
from vgpu import names
from vgpu.controller.fence import Fence
from vgpu.controller.preempt.recovery import Recovery, RecoveryParts
from vgpu.controller.translate import Translator
from vgpu.core.facts import PodFact
from vgpu.core.preempt.facts import OwnerKind, PlanFact, PlanPhase, QueueFact, Victim
from vgpu.core.preempt.plan import End, PlanEnd
from vgpu.core.preempt.roster import Roster
from vgpu.core.terms import OwnerRef, PodTerms
from vgpu.errors import ApiRefused, VgpuError
from vgpu.kube.objects import Key
from vgpu.settings import OperatorSettings

JOB = OwnerRef("uid-job", "Job", "train", "batch/v1")
JOB_PATH = "/apis/batch/v1/namespaces/team/jobs/train"
BOUND = End(PlanEnd.OWNER_BOUND, "it is bound")


class Clock:
    """Both of its times are `now`."""

    def __init__(self) -> None:
        self.now = 10_000.0

    def monotonic(self) -> float:
        return self.now

    def unix_seconds(self) -> int:
        return int(self.now)

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here sleeps by this clock")


@dataclass
class Api:
    """Objects by path, and what was written."""

    objects: dict[str, Json] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    created: list[Json] = field(default_factory=list)
    refuse_create: VgpuError | None = None

    async def get(self, path: str) -> bytes:
        self.reads.append(path)
        if path not in self.objects:
            raise ApiRefused(404, "NotFound", f"{path} not found")
        return encode(self.objects[path])

    async def delete_preemption(self, plan: Key) -> None:
        self.deleted.append(f"{plan.namespace}/{plan.name}")

    async def create_pod(self, namespace: str, body: dict[str, Any]) -> bytes:
        if self.refuse_create is not None:
            raise self.refuse_create
        self.created.append(body)
        return b"{}"


class World:
    """One node with one card, unless told otherwise."""

    def __init__(self, *nodes: str, bare_pods: bool = True, api: Api | None = None) -> None:
        self.ledger = ledger_of(*(nodes or ("node-a",)))
        self.roster = Roster(self.ledger)
        self.roster.put_queue(QueueFact("default"))
        for node in self.ledger.nodes():
            self.roster.cards_changed(node)
        self.clock, self.api = Clock(), api or Api()
        fence = Fence(10, 4, lambda: 0.0)
        fence.renewed(0.0)
        translator = Translator(OperatorSettings(), lambda node: None)
        self.recovery = Recovery(
            RecoveryParts(
                ledger=self.ledger,
                roster=self.roster,
                reader=self.api,
                writer=self.api,
                decode_pod=translator.decode_pod,
                fence=fence,
                clock=self.clock,
                bare_pods=bare_pods,
            )
        )

    def put(self, *pods: PodFact) -> None:
        for pod in pods:
            self.ledger.put_pod(pod)
            self.roster.put_pod(pod)
        self.tell()

    def drop(self, *uids: str) -> None:
        for uid in uids:
            self.ledger.drop_pod(uid)
            self.roster.drop_pod(uid)
        self.tell()

    def tell(self) -> None:
        self.recovery.changed(self.ledger.take_changes())

    def evict(self, plan: PlanFact, uid: str) -> None:
        """The API has accepted the eviction, and the pod is gone."""
        self.recovery.evicted(plan, self.roster.workloads[uid])
        self.roster.mark_evicted(uid)
        self.drop(uid)

    def end(self, plan: PlanFact) -> PlanFact:
        """The plan ends with its owner bound; the object as it stands then."""
        debts = self.recovery.plan_ended(plan, BOUND)
        ended = replace(plan, phase=PlanPhase.CLOSED, debts=debts)
        if not debts:
            return ended
        self.recovery.plan_changed(f"{plan.namespace}/{plan.name}", ended)
        return ended


def terms(owner: OwnerRef = JOB, **changes: Any) -> PodTerms:
    return PodTerms(owner=owner, created_seconds=changes.pop("created_seconds", 9_000), **changes)


def waiting(name: str, owner: OwnerRef = JOB, memory_mib: int = CARD_MIB, **changes: Any) -> PodFact:
    said = terms(owner, created_seconds=changes.pop("created_seconds", 9_000))
    return replace(pending(name, memory_mib), terms=said, **changes)


def running(name: str, owner: OwnerRef = JOB, node: str = "node-a", **changes: Any) -> PodFact:
    said = terms(owner, started_seconds=changes.pop("started_seconds", 9_100))
    return replace(bound(name, node, memory_mib=CARD_MIB), terms=said, **changes)


def plan(*victims: str, name: str = "plan", created: int = 10_000, **changes: Any) -> PlanFact:
    made = PlanFact(
        uid=f"uid-{name}",
        namespace="team",
        name=name,
        owner_kind=OwnerKind.POD,
        owner_name="high",
        owner_uids=("uid-high",),
        reservations=(),
        victims=tuple(Victim(uid, "team", uid.removeprefix("uid-"), "node-a") for uid in victims),
        rule="WithinQueue",
        exact=True,
        created_seconds=created,
    )
    return replace(made, **changes)


def job(**fields: Any) -> Json:
    """The Job that owns the pods; by default it wants one."""
    spec, status = fields.pop("spec", {"parallelism": 1, "completions": 1}), fields.pop("status", {})
    return {
        "metadata": {"name": "train", "namespace": "team", "uid": "uid-job", **fields},
        "spec": spec,
        "status": status,
    }


def bare_json(name: str = "bare") -> Json:
    """A running bare pod as the API shows it, with all that others added."""
    container = container_json(**{names.VOLCANO_NUMBER: "1"})
    container["volumeMounts"] = [
        {"name": "data", "mountPath": "/data"},
        {"name": "kube-api-access-x7", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
    ]
    spec = {
        "containers": [container],
        "nodeName": "node-a",
        "schedulerName": names.SCHEDULER_NAME,
        "priority": 10,
        "priorityClassName": "low",
        "preemptionPolicy": "PreemptLowerPriority",
        "serviceAccount": "me",
        "serviceAccountName": "me",
        "volumes": [
            {"name": "data", "emptyDir": {}},
            {"name": "kube-api-access-x7", "projected": {"sources": []}},
        ],
    }
    annotations = {
        names.ASSIGNMENT_ANNOTATION: "{}",
        names.WAKE_ANNOTATION: "1",
        names.VOLCANO_IDS: "x",
        names.POLICY_EVICT_BARE: "true",
    }
    return pod_json(
        name,
        spec=spec,
        status={"phase": "Running", "podIP": "10.0.0.1"},
        namespace="team",
        uid=f"uid-{name}",
        resourceVersion="17",
        creationTimestamp="2026-01-01T00:00:00Z",
        labels={"mine": "kept"},
        annotations=annotations,
        managedFields=[{}],
    )
