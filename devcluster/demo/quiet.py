"""Chapters 5 and 6: updates that mean nothing to us, and a cluster on which nothing happens."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from devcluster.demo import traffic
from devcluster.demo.scene import OK, PARALLEL_REQUESTS, Scene
from devcluster.demo.stage import Stage
from devcluster.nodes import NodeShape

PATCHES = 1000
PLAIN = "plain-"
QUIET_SECONDS = 3.0
RECOUNTS = "vgpu_recounts_total"
PATCHED = ("patch", "nodes", 200)


def show_updates(scene: Scene, stage: Stage) -> None:
    """Annotation-only patches of nodes between two nodes that join, which both replicas must have seen."""
    stage.chapter(
        f"{PATCHES:,} updates that mean nothing",
        "Annotations of nodes change, as by other controllers and heartbeats; we decode each and do nothing more.",
    )
    scene.settle(stage, QUIET_SECONDS)
    start = _recounts(scene)
    _join(scene, stage, 0)
    joined = _recounts(scene)
    cpu = {name: scene.cluster.usage(name).cpu_seconds for name in joined}
    since = scene.cluster.audit_events().position
    with stage.working(f"sending {PATCHES:,} patches"), ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        list(pool.map(lambda number: _patch(scene, number), range(PATCHES)))
    # Watches keep the order: whoever knows this node has seen every patch before it.
    _join(scene, stage, 1)
    patched = _recounts(scene)
    counted = traffic.count(scene.cluster.audit_events(since).events)
    spent = {name: scene.cluster.usage(name).cpu_seconds - cpu[name] for name in joined}
    stage.say(
        "A node without cards joins before and after the patches: whoever knows the second has seen them all."
    )
    header = ("REPLICA", "RECOUNTS", "AFTER A NODE JOINED", f"AFTER {PATCHES:,} PATCHES AND A NODE", "CPU SECONDS")
    rows = [(n, f"{start[n]:.0f}", f"{joined[n]:.0f}", f"{patched[n]:.0f}", f"{spent[n]:.2f}") for n in start]
    stage.table(header, rows)
    sent = sum(n for asked, n in counted.items() if (asked.verb, asked.resource, asked.code) == PATCHED)
    by_node = sum(joined[name] - start[name] for name in start)
    by_patches = sum(patched[name] - joined[name] for name in start) - by_node
    stage.claim(
        f"{PATCHES:,} patches cause 0 recounts",
        f"{sent:,} patches answered 200; a joining node causes {by_node:.0f} recounts in {len(start)} replicas, "
        f"the patches caused {by_patches:.0f}",
        sent == PATCHES and by_patches == 0,
    )
    ours = Counter({asked: n for asked, n in counted.items() if asked.ours})
    stage.claim(
        "operator and agents wrote and read nothing meanwhile but the Lease",
        traffic.in_words(ours),
        all(asked.routine for asked in ours),
    )


def _recounts(scene: Scene) -> dict[str, float]:
    return {name: replica.metric(RECOUNTS) for name, replica in scene.operators.replicas.items()}


def _join(scene: Scene, stage: Stage, number: int) -> None:
    """A node without cards joins and every replica has taken it in."""
    [node] = scene.cluster.create_nodes(1, NodeShape(), prefix=PLAIN, first=number)
    replicas = scene.operators.replicas.values()
    stage.wait(lambda: all(item.get(f"/nodes/{node}")[0] == OK for item in replicas), f"{node} to be known")


def _patch(scene: Scene, number: int) -> None:
    node = scene.nodes[number % len(scene.nodes)]
    body = {"metadata": {"annotations": {"example.com/beat": str(number)}}}
    scene.cluster.api.patch(f"/api/v1/nodes/{node}", body)


def show_idle(scene: Scene, stage: Stage, idle_seconds: float) -> None:
    """The audit log of a while in which nothing happens."""
    stage.chapter(
        "Nothing happens, nothing is asked",
        f"{idle_seconds:g} seconds with pods running and one waiting, as the API server's audit log has it.",
    )
    scene.settle(stage, QUIET_SECONDS)
    since = scene.cluster.audit_events().position
    with stage.working(f"idling for {idle_seconds:g} s"):
        time.sleep(idle_seconds)
    counted = traffic.count(scene.cluster.audit_events(since).events)
    stage.table(traffic.HEADER, traffic.rows(counted))
    replicas, agents = len(scene.operators.replicas), len(scene.nodes)
    for user, who in (
        (traffic.OPERATOR, f"the operator's {replicas} replicas"),
        (traffic.AGENT, f"{agents} agents"),
    ):
        own = Counter({a: n for a, n in counted.items() if a.user == user})
        odd = Counter({a: n for a, n in own.items() if not a.routine})
        stage.claim(f"{who} ask for nothing but watches renewed and the Lease", traffic.in_words(own), not odd)
    writes = Counter({a: n for a, n in counted.items() if a.ours and a.verb not in traffic.READS})
    stage.claim(
        "the Lease is all that is written",
        traffic.in_words(writes),
        bool(writes) and all(asked.resource == "leases" for asked in writes),
    )
