"""Our kinds on the real API server: good objects are kept as written, bad ones refused with a clear message."""

import json
from typing import Any

import pytest

from devcluster import ApiRefused, Cluster
from vgpu import names
from vgpu.api.inventory import parse_inventory
from vgpu.api.queue import parse_queue

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("crds")]

BASE = f"/apis/{names.API_VERSION}"
INVENTORIES = f"{BASE}/{names.INVENTORY_PLURAL}"
QUEUES = f"{BASE}/{names.QUEUE_PLURAL}"
PREEMPTIONS = f"{BASE}/namespaces/default/{names.PREEMPTION_PLURAL}"


def make_gpu(number: int = 0, **changes: Any) -> dict[str, Any]:
    """One healthy card; a change to None leaves the field out."""
    gpu = {
        "uuid": f"GPU-{number}",
        "index": number,
        "model": "NVIDIA A100-SXM4-80GB",
        "memoryMiB": 81920,
        "cores": 100,
        "slots": 10,
        "mode": "shared",
        "health": "Healthy",
        **changes,
    }
    return {key: value for key, value in gpu.items() if value is not None}


def make_inventory(name: str, *gpus: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """An inventory of `gpus`; a change of the spec to None leaves the field out."""
    whole = {
        "slotResource": names.VOLCANO_NUMBER,
        "identity": "exact",
        "plugin": "vgpu",
        "gpus": list(gpus),
        **spec,
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.INVENTORY_KIND,
        "metadata": {"name": name},
        "spec": {key: value for key, value in whole.items() if value is not None},
    }


def make_queue(name: str = "q", **spec: Any) -> dict[str, Any]:
    """A queue with this spec."""
    return {"apiVersion": names.API_VERSION, "kind": names.QUEUE_KIND, "metadata": {"name": name}, "spec": spec}


RESERVATION = {"uid": "uid-1", "node": "n", "card": "GPU-1", "slots": 1, "memoryMiB": 1000, "cores": 10}


def make_preemption(**changes: Any) -> dict[str, Any]:
    """A plan for one pod with `changes` of its spec."""
    spec = {
        "owner": {"kind": "Pod", "name": "train-1", "uids": ["uid-1"]},
        "reservations": [RESERVATION],
        "victims": [{"uid": "uid-2", "namespace": "default", "name": "low", "node": "n"}],
        "rule": "LowerPriority",
        "exact": True,
        **changes,
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.PREEMPTION_KIND,
        "metadata": {"name": "plan"},
        "spec": spec,
    }


def apply(cluster: Cluster, path: str, body: dict[str, Any], manager: str = "vgpu-agent") -> None:
    """Server-side apply with force, as the agents do it."""
    cluster.kubectl(
        "apply",
        "--server-side",
        "--force-conflicts",
        f"--field-manager={manager}",
        "-f",
        "-",
        input=json.dumps(body),
    )


BAD = {
    "no cards field": (INVENTORIES, make_inventory("n", gpus=None), "spec.gpus: Required value"),
    "no slot resource": (INVENTORIES, make_inventory("n", slotResource=None), "spec.slotResource: Required value"),
    "slot resource without a domain": (
        INVENTORIES,
        make_inventory("n", slotResource="vgpu"),
        "slotResource must be a resource name with a domain, such as volcano.sh/vgpu-number",
    ),
    "identity": (INVENTORIES, make_inventory("n", identity="guess"), 'supported values: "exact", "deferred"'),
    "plugin": (INVENTORIES, make_inventory("n", plugin="x"), 'supported values: "vgpu", "hami", "volcano"'),
    "exact with another plugin": (
        INVENTORIES,
        make_inventory("n", plugin="hami"),
        "identity must be deferred where the plugin is hami or volcano",
    ),
    "negative index": (
        INVENTORIES,
        make_inventory("n", make_gpu(index=-1)),
        "spec.gpus[0].index in body should be greater than or equal to 0",
    ),
    "no memory": (
        INVENTORIES,
        make_inventory("n", make_gpu(memoryMiB=0)),
        "spec.gpus[0].memoryMiB in body should be greater than or equal to 1",
    ),
    "huge memory": (
        INVENTORIES,
        make_inventory("n", make_gpu(memoryMiB=2**31)),
        "spec.gpus[0].memoryMiB in body should be less than or equal to 2147483647",
    ),
    "memory as text": (
        INVENTORIES,
        make_inventory("n", make_gpu(memoryMiB="81920")),
        "spec.gpus[0].memoryMiB in body must be of type integer",
    ),
    "half a card's cores": (
        INVENTORIES,
        make_inventory("n", make_gpu(cores=50)),
        'spec.gpus[0].cores: Unsupported value: 50: supported values: "100"',
    ),
    "no slots": (
        INVENTORIES,
        make_inventory("n", make_gpu(slots=0)),
        "spec.gpus[0].slots in body should be greater than or equal to 1",
    ),
    "no health": (INVENTORIES, make_inventory("n", make_gpu(health=None)), "spec.gpus[0].health: Required value"),
    "unknown health": (
        INVENTORIES,
        make_inventory("n", make_gpu(health="Fine")),
        'supported values: "Healthy", "Unhealthy"',
    ),
    "mode": (INVENTORIES, make_inventory("n", make_gpu(mode="mps")), 'supported values: "shared", "mig"'),
    "no uuid": (INVENTORIES, make_inventory("n", make_gpu(uuid=None)), "spec.gpus[0].uuid: Required value"),
    "same uuid twice": (
        INVENTORIES,
        make_inventory("n", make_gpu(0), make_gpu(1, uuid="GPU-0")),
        'spec.gpus[1]: Duplicate value: {"uuid":"GPU-0"}',
    ),
    "two UUIDs in one": (
        INVENTORIES,
        make_inventory("n", make_gpu(0, uuid="GPU-0,GPU-1")),
        "a card's UUID has only letters, digits, dots, underscores, slashes and dashes",
    ),
    "same index twice": (
        INVENTORIES,
        make_inventory("n", make_gpu(0), make_gpu(1, index=0)),
        "two cards have the same index",
    ),
    "too many cards": (
        INVENTORIES,
        make_inventory("n", *(make_gpu(index) for index in range(65))),
        "spec.gpus: Too many: 65: must have at most 64 items",
    ),
    "a queue's long name": (
        QUEUES,
        make_queue("q" * 64),
        "a queue's name is used in labels: at most 63 characters",
    ),
    "guarantee above deserved": (
        QUEUES,
        make_queue(guarantee={"cards": "1500m"}, deserved={"cards": 1}),
        "guarantee.cards must be at most deserved.cards",
    ),
    "guarantee without deserved": (
        QUEUES,
        make_queue(guarantee={"memoryMiB": 1}),
        "guarantee.memoryMiB must be at most deserved.memoryMiB",
    ),
    "deserved above capability": (
        QUEUES,
        make_queue(deserved={"cores": 200}, capability={"cores": 100}),
        "deserved.cores must be at most capability.cores",
    ),
    "cards in GiB": (
        QUEUES,
        make_queue(deserved={"cards": "4Gi"}),
        "cards must be a number of cards such as 4, 250m or '0.5', a fraction in quotes",
    ),
    "negative cards": (
        QUEUES,
        make_queue(deserved={"cards": -4}),
        "cards must be a number of cards such as 4, 250m or '0.5', a fraction in quotes",
    ),
    "a fraction without quotes": (
        QUEUES,
        make_queue(deserved={"cards": 0.5}),
        "spec.deserved.cards in body must be of type integer,string",
    ),
    "negative memory": (
        QUEUES,
        make_queue(deserved={"memoryMiB": -1}),
        "spec.deserved.memoryMiB in body should be greater than or equal to 0",
    ),
    "a duration in words": (
        QUEUES,
        make_queue(preemption={"waitBefore": "soon"}),
        'spec.preemption.waitBefore: Invalid value: "soon": must be a duration of hours, minutes and seconds',
    ),
    "a duration with a space": (
        QUEUES,
        make_queue(preemption={"minRuntime": {"preempt": "5 minutes"}}),
        "such as 90s, 5m or 1h30m, without spaces",
    ),
    "a backoff in words": (
        QUEUES,
        make_queue(onPreempted={"backoff": {"base": "soon", "max": "5m"}}),
        'spec.onPreempted.backoff.base: Invalid value: "soon": must be a duration',
    ),
    "cards as a map": (QUEUES, make_queue(deserved={"cards": {"count": 4}}), "spec.deserved.cards"),
    "threshold without policy": (
        QUEUES,
        make_queue(preemption={"borrowAcrossQueues": {"maxPriorityThreshold": 5}}),
        "maxPriorityThreshold needs policy LowerPriority",
    ),
    "backoff upside down": (
        QUEUES,
        make_queue(onPreempted={"backoff": {"base": "10m", "max": "5m"}}),
        "base must be at most max",
    ),
    "half a backoff": (
        QUEUES,
        make_queue(onPreempted={"backoff": {"base": "10s"}}),
        "spec.onPreempted.backoff.max: Required value",
    ),
    "a stop policy": (
        QUEUES,
        make_queue(stopPolicy="Halt"),
        'supported values: "None", "Hold", "HoldAndDrain"',
    ),
    "a plan without reservations": (
        PREEMPTIONS,
        make_preemption(reservations=[]),
        "spec.reservations in body should have at least 1 items",
    ),
    "a plan without pods": (
        PREEMPTIONS,
        make_preemption(owner={"kind": "Pod", "name": "p", "uids": []}),
        "spec.owner.uids in body should have at least 1 items",
    ),
    "the same victim twice": (
        PREEMPTIONS,
        make_preemption(victims=[{"uid": "u", "namespace": "a", "name": str(n), "node": "n"} for n in range(2)]),
        'spec.victims[1]: Duplicate value: {"uid":"u"}',
    ),
}


def test_kubectl_explains_how_cards_are_written(clean_cluster: Cluster) -> None:
    """kubectl refuses a map as unknown fields before the schema is asked; here is where one looks then."""
    printed = " ".join(clean_cluster.kubectl("explain", "gpuqueues.spec.deserved.cards").split())
    assert "such as 4, 250m (a quarter) or '0.5' (in quotes: without them it is refused), not as a map" in printed


@pytest.mark.parametrize(("path", "body", "want"), BAD.values(), ids=BAD.keys())
def test_a_bad_object_is_refused_with_a_message(
    clean_cluster: Cluster, path: str, body: dict[str, Any], want: str
) -> None:
    with pytest.raises(ApiRefused) as refused:
        clean_cluster.api.post(path, body)
    assert refused.value.code == 422
    assert want in refused.value.message


def test_an_inventory_is_kept_as_its_agent_wrote_it(clean_cluster: Cluster) -> None:
    body = make_inventory("node-1", make_gpu(1, nvlinkPeers=["GPU-0"], minor=1, numaNode=0), make_gpu(0))
    apply(clean_cluster, INVENTORIES, body)
    seen = parse_inventory(json.dumps(clean_cluster.api.get(f"{INVENTORIES}/node-1")))
    assert seen.canonical() == parse_inventory(json.dumps(body)).canonical()


def test_an_apply_replaces_the_whole_spec(clean_cluster: Cluster) -> None:
    """What another manager added goes, since the spec is atomic."""
    apply(clean_cluster, INVENTORIES, make_inventory("node-1", make_gpu(0)))
    apply(clean_cluster, INVENTORIES, make_inventory("node-1", make_gpu(0), make_gpu(7), bootId="x"), "intruder")
    apply(clean_cluster, INVENTORIES, make_inventory("node-1", make_gpu(0)))
    spec = clean_cluster.api.get(f"{INVENTORIES}/node-1")["spec"]
    assert [gpu["uuid"] for gpu in spec["gpus"]] == ["GPU-0"]
    assert "bootId" not in spec


def test_an_apply_of_equal_content_changes_nothing(clean_cluster: Cluster) -> None:
    body = make_inventory("node-1", make_gpu(0))
    apply(clean_cluster, INVENTORIES, body)
    before = clean_cluster.api.get(f"{INVENTORIES}/node-1")["metadata"]["resourceVersion"]
    apply(clean_cluster, INVENTORIES, body)
    assert clean_cluster.api.get(f"{INVENTORIES}/node-1")["metadata"]["resourceVersion"] == before


def test_status_is_written_by_its_subresource_alone(clean_cluster: Cluster) -> None:
    status = {"summary": {"cards": "1/1"}}
    clean_cluster.api.post(INVENTORIES, {**make_inventory("node-1", make_gpu(0)), "status": status})
    assert "status" not in clean_cluster.api.get(f"{INVENTORIES}/node-1")
    clean_cluster.api.patch(f"{INVENTORIES}/node-1/status", {"status": status, "spec": {"bootId": "x"}})
    seen = clean_cluster.api.get(f"{INVENTORIES}/node-1")
    assert seen["status"] == status
    assert "bootId" not in seen["spec"]


def test_kubectl_shows_who_has_what(clean_cluster: Cluster) -> None:
    clean_cluster.api.post(INVENTORIES, make_inventory("node-1", make_gpu(0)))
    ready = {"type": "Ready", "status": "False", "reason": "AgentDown", "message": "m"}
    summary = {"cards": "7/8", "slots": "3/80", "memoryMiB": "3000/655360", "cores": "90/800"}
    status = {"conditions": [{**ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}], "summary": summary}
    clean_cluster.api.patch(f"{INVENTORIES}/node-1/status", {"status": status})
    header, row = clean_cluster.kubectl("get", "gni").splitlines()
    assert header.split() == ["NAME", "CARDS", "SLOTS", "MEMORY", "MIB", "CORES", "READY", "REASON", "AGE"]
    assert row.split()[:7] == ["node-1", "7/8", "3/80", "3000/655360", "90/800", "False", "AgentDown"]
    assert "node-1" in clean_cluster.kubectl("get", names.INVENTORY_KIND.lower())
    assert "node-1" in clean_cluster.kubectl("get", "vgpu")


def test_a_plan_never_changes(clean_cluster: Cluster) -> None:
    clean_cluster.api.post(PREEMPTIONS, make_preemption())
    with pytest.raises(ApiRefused, match="a plan never changes: delete it and make another"):
        clean_cluster.api.patch(f"{PREEMPTIONS}/plan", {"spec": {"rule": "Any"}})
    clean_cluster.api.patch(f"{PREEMPTIONS}/plan/status", {"status": {"phase": "Draining", "waitsFor": "low"}})
    assert "train-1" in clean_cluster.kubectl("get", "gpup")


def test_a_full_queue_is_kept_as_written(clean_cluster: Cluster) -> None:
    spec = {
        "priority": 10,
        "guarantee": {"cards": "250m", "memoryMiB": 1000},
        "deserved": {"cards": 4, "memoryMiB": 1000, "cores": 400},
        "capability": {"cards": "8", "cores": 400},
        "reclaimable": False,
        "preemption": {
            "withinQueue": "LowerOrNewerEqualPriority",
            "reclaimAcrossQueues": "LowerPriority",
            "borrowAcrossQueues": {"policy": "LowerPriority", "maxPriorityThreshold": 100},
            "minRuntime": {"preempt": "5m", "reclaim": "1h30m"},
            "waitBefore": "30s",
            "disruptionBudget": "BestEffort",
            "maxInFlight": 10,
            "stuckTimeout": "60s",
            "holdTimeout": "5m",
        },
        "onPreempted": {"action": "Requeue", "backoff": {"base": "10s", "max": "5m"}},
        "stopPolicy": "Hold",
    }
    clean_cluster.api.post(QUEUES, make_queue("full", **spec))
    seen = clean_cluster.api.get(f"{QUEUES}/full")
    assert seen["spec"] == spec
    assert parse_queue(json.dumps(seen)).spec.deserved.cards_thousandths == 4000
