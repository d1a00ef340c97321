"""Chapters 3 and 4: a pod that fits nowhere is told why, and an agent is lost and comes back."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from devcluster.demo.books import held_pairs, shown_holders
from devcluster.demo.scene import Scene
from devcluster.demo.stage import Stage
from devcluster.demo.workload import LATE, TOO_BIG, make_pod
from vgpu import names
from vgpu.core.reasons import Reason

TOO_BIG_POD = f"{TOO_BIG.name}-0"
LATE_POD = "late"
COLUMNS = ("NAME", "CARDS", "SLOTS", "READY", "REASON")


def show_refusal(scene: Scene, stage: Stage) -> None:
    """One event, and the same answer in full by HTTP."""
    stage.chapter(
        "A pod that fits nowhere is told why",
        f"{TOO_BIG_POD} wants more memory than any one card has, though every node has far more in all.",
    )
    scene.create(list(TOO_BIG.pods()))
    stage.wait(lambda: bool(scene.events_of(TOO_BIG_POD)), "an event about the pod")
    fields = "REASON:.reason,COUNT:.count,MESSAGE:.message"
    selector = f"involvedObject.name={TOO_BIG_POD},source={names.OPERATOR_FIELD_MANAGER}"
    arguments = ("get", "events", "--field-selector", selector)
    stage.command(f"kubectl {' '.join(arguments)}")
    text = scene.cluster.kubectl(*arguments, "-o", f"custom-columns={fields}", "--no-headers")
    stage.table(("REASON", "COUNT", "MESSAGE"), [line.split(maxsplit=2) for line in text.splitlines()])
    path = f"/explain?pod=default/{TOO_BIG_POD}"
    stage.command(f"curl 'localhost:8080{path}&output=text'")
    stage.output(_shortened(scene.ask_leader(f"{path}&output=text")))
    answer = scene.explain(TOO_BIG_POD)
    events = scene.events_of(TOO_BIG_POD)
    stage.claim(
        f"one event with reason {Reason.INSUFFICIENT_MEMORY}",
        f"{len(events)} event, count {events[0]['count']}, reason {events[0]['reason']}",
        len(events) == events[0]["count"] == 1 and events[0]["reason"] == Reason.INSUFFICIENT_MEMORY,
    )
    refusing = [node for node in answer["nodes"] if not node["fits"]]
    same = answer["message"] == events[0]["message"]
    stage.claim(
        "/explain says the same, for every node",
        f"{'the same' if same else 'another'} message, {len(refusing)} nodes refuse with "
        f"{sum(len(node['cards']) for node in refusing)} cards looked at",
        same and len(refusing) == len(scene.nodes),
    )


def _shortened(text: str) -> str:
    """The head, and of each of the two tables behind it one row for each reason."""
    head, nodes, cards = text.strip().split("\n\n")
    return "\n\n".join([head, _one_for_each(nodes, "REASON"), _one_for_each(cards, "WHY")])


def _one_for_each(table: str, column: str) -> str:
    """The first row for each value of a column."""
    header, *rows = table.splitlines()
    start = header.index(column)
    shown = {(row[start:].split(maxsplit=1) or ["-"])[0]: row for row in reversed(rows)}
    kept = [row for row in rows if row in shown.values()]
    return "\n".join([header, *kept, f"... {len(rows) - len(kept)} more rows"])


def _where_it_fits(scene: Scene) -> list[dict[str, Any]]:
    """The event of the pod that says why it fits nowhere; another tells why nobody goes for it."""
    return [event for event in scene.events_of(LATE_POD) if event["reason"] == Reason.NO_ALLOCATABLE]


def show_lost_agent(scene: Scene, stage: Stage) -> None:
    """Allocatable 0, closed, open again."""
    node, card = _node_and_empty_card(scene)
    stage.chapter(
        "An agent is lost and comes back",
        f"The agent of {node} ends, kubelet offers no slots: the node takes nothing new; what runs there stays.",
    )
    moments = [("before", _row(scene, node))]
    held, generation = _held_on(scene, node), _inventory(scene, node)["metadata"]["generation"]
    scene.agents.lose(node)
    stage.wait(lambda: not scene.is_ready(_inventory(scene, node)), f"{node} to be closed")
    moments.append(("agent lost", _row(scene, node)))
    scene.create([make_pod(LATE_POD, LATE, card=card)])
    stage.wait(lambda: bool(_where_it_fits(scene)), f"{LATE_POD} to be told that it waits")
    [event] = _where_it_fits(scene)
    why = next(item for item in scene.explain(LATE_POD)["nodes"] if item["node"] == node)["reason"]
    bound_meanwhile, kept = scene.node_of(LATE_POD), _held_on(scene, node)
    started = time.monotonic()
    scene.agents.restore(node)
    stage.wait(lambda: bool(scene.node_of(LATE_POD)), f"{LATE_POD} to be bound")
    seconds = time.monotonic() - started
    stage.wait(lambda: scene.is_ready(_inventory(scene, node)), f"{node} to be open")
    stage.wait(lambda: (card, LATE_POD) in shown_holders(scene.inventories()), f"{LATE_POD} to be shown")
    moments.append(("agent back", _row(scene, node)))
    stage.command(f"kubectl get gpunodeinventory {node}     (at three moments)")
    stage.table(("MOMENT", *COLUMNS), [(name, *(row[column] for column in COLUMNS)) for name, row in moments])
    stage.say(f"Pod {LATE_POD} asks for card {card} of {node}. Its event while it waits:")
    stage.say(f"{event['reason']}: {event['message']}")
    _claim_closed(stage, moments, why, bound_meanwhile)
    stage.claim(
        "what runs there keeps its cards",
        f"{len(held)} assignments before, {len(kept & held)} of them while the agent was lost",
        bool(held) and kept == held,
    )
    after = _inventory(scene, node)["metadata"]["generation"]
    stage.claim(
        f"{LATE_POD} is bound once the agent is back, and the agent has nothing to write",
        f"{LATE_POD} on {scene.node_of(LATE_POD)} within {seconds:.1f} s, generation of the inventory "
        f"{generation} before and {after} after",
        scene.node_of(LATE_POD) == node and after == generation,
    )


def _claim_closed(
    stage: Stage, moments: Sequence[tuple[str, Mapping[str, str]]], why: str, bound_meanwhile: str
) -> None:
    seen = [f"{row['READY']}/{row['REASON']}" for _, row in moments]
    want = [f"True/{Reason.READY}", f"False/{Reason.NO_ALLOCATABLE}", f"True/{Reason.READY}"]
    stage.claim(
        f"the node is open, closed, open; meanwhile {LATE_POD} waits, by /explain for {Reason.NO_ALLOCATABLE}",
        f"{', '.join(seen)}; {LATE_POD} {'was bound' if bound_meanwhile else 'waited'}, {why}",
        seen == want and not bound_meanwhile and why == Reason.NO_ALLOCATABLE,
    )


def _node_and_empty_card(scene: Scene) -> tuple[str, str]:
    """The node with most holders among those that have an empty card and offer what the late pod asks for."""
    [resource] = [name for name in LATE if name in scene.slot_resources.values()]
    found = [
        (item["status"]["totals"]["usedSlots"], item["metadata"]["name"], gpu["uuid"])
        for item in scene.inventories()
        for gpu in item["status"]["gpus"]
        if scene.slot_resources[item["metadata"]["name"]] == resource and not gpu.get("holders")
    ]
    _, node, card = max(found)
    return node, card


def _held_on(scene: Scene, node: str) -> set[tuple[str, str]]:
    """(card, pod) of every assignment on a node."""
    cards = {gpu["uuid"] for gpu in _inventory(scene, node)["spec"]["gpus"]}
    return {pair for pair in held_pairs(scene.pods()) if pair[0] in cards}


def _inventory(scene: Scene, node: str) -> dict[str, Any]:
    return next(item for item in scene.inventories() if item["metadata"]["name"] == node)


def _row(scene: Scene, node: str) -> dict[str, str]:
    """kubectl's row of one node, by column."""
    head, line = scene.get_table([node]).splitlines()
    return {name: line[head.index(name) :].split(maxsplit=1)[0] for name in COLUMNS}
