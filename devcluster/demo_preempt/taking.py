"""Chapters 3 and 4: the newcomer comes, exactly those go that were named, and the hole that they leave is held."""

import json
from collections.abc import Collection, Sequence
from typing import Any

from devcluster.demo.books import held_cards
from devcluster.demo.stage import Stage
from devcluster.demo_preempt.scene import Play
from devcluster.demo_preempt.workload import CHAT, RUNNING, VISITOR
from vgpu.core.reasons import Reason

PLAN_COMMAND = ("get", "gpupreemptions")


def show_evictions(play: Play, stage: Stage, foretold: Sequence[str]) -> list[str]:
    """One plan, its victims, everybody else untouched. Hands back who was evicted."""
    stage.chapter(
        "The newcomer arrives",
        f"{CHAT.name} is created. Its victims take their time to end, so that the hole can be looked at.",
    )
    before, since = play.uids(RUNNING), play.cluster.audit_events().position
    named = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in play.scene.pods()}
    play.begin(CHAT)
    stage.wait(lambda: len(play.evicted(since)) >= len(foretold), "the evictions")
    stage.wait(
        lambda: any(p.get("status", {}).get("phase") == "Draining" for p in play.plans()), "the plan to drain"
    )
    evicted = sorted(play.evicted(since))
    stage.command(f"kubectl {' '.join(PLAN_COMMAND)}")
    stage.output(play.cluster.kubectl(*PLAN_COMMAND))
    for name in (evicted[0], CHAT.name):
        stage.wait(lambda name=name: bool(play.events_about(name)), f"the event about {name}")  # type: ignore[misc]
    rows = [
        (name, event["reason"], event["message"])
        for name in (*evicted[:1], CHAT.name)
        for event in play.events_about(name)
    ]
    stage.table(("POD", "EVENT", "WORDS"), rows)
    gone = {named[name] for name in evicted}
    kept = play.uids(RUNNING) & before
    stage.claim(
        "exactly the pods that were foretold are evicted, each once",
        f"foretold {', '.join(foretold)}; evicted {', '.join(evicted)}",
        evicted == sorted(foretold),
    )
    stage.claim(
        "everybody else goes on untouched",
        f"{len(before)} pods ran before, {len(kept)} of them run on, {len(gone)} go",
        kept == before - gone,
    )
    return evicted


def show_hole(play: Play, stage: Stage, evicted: Sequence[str]) -> None:
    """A pod that would fit into the half-made hole waits; the newcomer gets the very cards that were planned."""
    stage.chapter(
        "The hole is held",
        f"One victim ends: 25 % of 8 cards are free. A {VISITOR.name} that wants {VISITOR.asks} would fit there.",
    )
    [plan] = play.plans()
    planned = {held["card"] for held in plan["spec"]["reservations"]}
    play.let_go(evicted[:1])
    play.begin(VISITOR)
    stage.wait(
        lambda: {card["why"] for card in _cards(play, planned)} == {Reason.HELD_FOR_ANOTHER},
        f"{VISITOR.name} to be told that the cards are held",
    )
    stage.command(f"kubectl vgpu explain {VISITOR.name}     (its lines about the planned cards)")
    rows = [
        (card["uuid"], str(card["freeMemoryMiB"]), str(card["freeCores"]), card["why"])
        for card in _cards(play, planned)
    ]
    stage.table(("CARD", "FREE MIB", "FREE CORES", "WHY NOT"), rows)
    stole = play.scene.node_of(VISITOR.name)
    stage.claim(
        f"the {VISITOR.name} is told that the room is held for another, and waits",
        f"{VISITOR.name} {'was placed on ' + stole if stole else 'waits'}; {CHAT.name} waits for the other two",
        not stole and not play.scene.node_of(CHAT.name),
    )
    play.let_go(evicted[1:])
    stage.wait(lambda: bool(play.scene.node_of(CHAT.name)), f"{CHAT.name} to be bound")
    given = {held.uuid for held in held_cards(play.scene.pod(CHAT.name))}
    stage.claim(
        f"{CHAT.name} gets the very cards that were planned",
        f"planned {', '.join(sorted(planned))}; given {', '.join(sorted(given))}",
        given == planned,
    )


def _cards(play: Play, uuids: Collection[str]) -> list[dict[str, Any]]:
    """What /explain says of these cards to the visitor."""
    answer = json.loads(play.vgpu("explain", VISITOR.name, "-o", "json"))
    return [card for node in answer["nodes"] for card in node["cards"] if card["uuid"] in uuids]
