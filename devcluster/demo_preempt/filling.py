"""Chapters 1 and 2: a full cluster that one team has borrowed, and the question what a newcomer would cost."""

import json

from devcluster.demo.agents import CARDS
from devcluster.demo.books import faults, held_cards
from devcluster.demo.stage import Stage
from devcluster.demo_preempt.scene import Play, show_sections
from devcluster.demo_preempt.workload import CHAT, CLASSES, RESEARCH, RUNNING
from vgpu import names
from vgpu.report.what_if import what_if_sections

QUIET_SECONDS = 2.0
QUEUE_COMMAND = ("get", "gpuqueues")


def show_full(play: Play, stage: Stage) -> None:
    """Five workloads of one team take every card."""
    cards = len(play.scene.nodes) * CARDS
    stage.chapter(
        "A cluster that one team has borrowed",
        f"{cards} cards: research deserves 40, serving 100. Serving runs nothing yet, so research has all.",
    )
    for work in RUNNING:
        play.begin(work)
        stage.wait(lambda work=work: len(play.running(work)) == work.count, f"{work.name} to run")  # type: ignore[misc]
    rows = [
        (
            work.name,
            str(work.count),
            work.asks,
            f"{work.class_name} ({CLASSES[work.class_name]})",
            _made_by(work.bare),
        )
        for work in RUNNING
    ]
    stage.table(("WORKLOAD OF RESEARCH", "PODS", "EACH ASKS FOR", "CLASS", "MADE BY"), rows)
    stage.wait(lambda: f"{cards}" in _used(play), "the queue to show what it uses")
    stage.command(f"kubectl {' '.join(QUEUE_COMMAND)}")
    stage.output(play.cluster.kubectl(*QUEUE_COMMAND))
    pods = play.scene.pods()
    held = {held.uuid for pod in pods for held in held_cards(pod)}
    wrong = faults(play.scene.inventories(), pods)
    stage.claim(
        f"every one of {cards} cards is in use, and none holds more than it has",
        f"{len(pods)} pods on {len(held)} cards; {'; '.join(wrong[:3]) or 'no card over'}",
        len(held) == cards and not wrong,
    )


def _made_by(bare: bool) -> str:
    return "hand: nothing would bring it back" if bare else "a ReplicaSet"


def _used(play: Play) -> str:
    path = f"/apis/{names.API_VERSION}/{names.QUEUE_PLURAL}/{RESEARCH}"
    return str(play.cluster.api.get(path).get("status", {}).get("used", {}).get("cards", ""))


def show_question(play: Play, stage: Stage) -> list[str]:
    """What-if: the plan without a plan. Hands back the names of the pods that would go."""
    stage.chapter(
        "Before anything happens: what would it cost?",
        f"Serving means to start {CHAT.name}, which wants {CHAT.asks}. We only ask.",
    )
    path = play.manifest(CHAT)
    play.scene.settle(stage, QUIET_SECONDS)
    since = play.cluster.audit_events().position
    stage.command(f"kubectl vgpu what-if -f {CHAT.name}.yaml")
    answer = json.loads(play.vgpu("what-if", "-f", path, "-o", "json"))
    show_sections(stage, what_if_sections(answer))
    victims = sorted(victim["pod"].partition("/")[2] for victim in answer["victims"])
    stage.claim(
        "3 of the 4 pods on one set of cards would go: 75 % of each card is enough, 50 % is not",
        f"{len(victims)} victims: {', '.join(victims)}; proven least: {answer['exact']}",
        len(victims) == 3 and all(name.startswith("sweep-") for name in victims) and answer["exact"],
    )
    writes = play.written(since)
    stage.claim("asking writes nothing", f"{len(writes)} writes of the operator", not writes)
    return victims
