"""Chapters 5 and 6: many at once while the leader is killed, and the return of everybody when they have gone."""

import time
from collections import Counter
from math import ceil

from devcluster.demo.books import faults, held_cards
from devcluster.demo.stage import Stage
from devcluster.demo_preempt.scene import Play
from devcluster.demo_preempt.workload import BURST, CHAT, RUNNING, VISITOR

DESERVED_CARDS = 40
SHARE_GROUP, GROUP_CARDS = 4, 8
"""Pods of the first workload that share their cards, and how many those are."""


def show_burst(play: Play, stage: Stage) -> None:
    """24 newcomers, the leader killed after the first evictions: the other replica goes on with the same plans."""
    stage.chapter(
        "Many at once, and the leader dies in the middle",
        f"{BURST.count} pods of {BURST.name} want {BURST.asks} each. After the first evictions the leader "
        "is killed; the other one reads what was decided from the plans and goes on.",
    )
    since = play.cluster.audit_events().position
    leader = play.leader.name
    play.begin(BURST)
    stage.wait(lambda: len(play.evicted(since)) >= 3, "the first evictions")
    play.scene.operators.kill(leader)
    before = len(play.evicted(since))

    def all_run() -> bool:
        play.let_go(_lingering(play))
        return len(play.running(BURST)) == BURST.count

    stage.wait(all_run, f"{BURST.count} pods of {BURST.name} to run", 120, instead=lambda: play.absent([BURST]))
    evicted = play.evicted(since)
    kinds = Counter(name.partition("-")[0] for name in evicted)
    stage.say(f"{leader} was killed after {before} evictions; {play.leader.name} leads now. Evicted in all:")
    stage.table(("WORKLOAD", "PODS EVICTED"), [(kind, str(number)) for kind, number in sorted(kinds.items())])
    cards = {held.uuid for pod in play.running(BURST).values() for held in held_cards(pod)}
    wrong = faults(play.scene.inventories(), play.scene.pods())
    stage.claim(
        f"{BURST.count} pods run on {BURST.count} different cards, and no card is over its limits",
        f"{len(cards)} cards; {'; '.join(wrong[:3]) or 'no fault'}",
        len(cards) == BURST.count and not wrong,
    )
    groups = ceil(kinds[RUNNING[0].name] / SHARE_GROUP)
    alone = len(evicted) - kinds[RUNNING[0].name]
    freed = alone + groups * GROUP_CARDS
    visited = {held.uuid for pod in play.running(VISITOR).values() for held in held_cards(pod)}
    stage.claim(
        "nobody was evicted twice, and no more cards were cleared than newcomers sit on",
        f"{len(evicted)} evictions of {len(set(evicted))} pods: {alone} alone on a card, {groups} groups of "
        f"{SHARE_GROUP} that shared {GROUP_CARDS}; {freed} cards cleared, {len(cards)} taken by {BURST.name} and "
        f"{len(visited)} by {VISITOR.name}",
        len(evicted) == len(set(evicted)) and freed <= len(cards | visited),
    )
    kept = sum(len(held_cards(pod)) for work in RUNNING[1:] for pod in play.running(work).values())
    bare = len(play.running(RUNNING[-1]))
    stage.claim(
        f"research keeps the {DESERVED_CARDS} cards that it deserves, and the pods that nothing would bring back",
        f"{kept} whole cards of research in use, {bare} of {RUNNING[-1].count} {RUNNING[-1].name} pods untouched",
        kept >= DESERVED_CARDS and bare == RUNNING[-1].count,
    )


def _lingering(play: Play) -> list[str]:
    pods = play.scene.pods()
    return [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" in pod["metadata"]]


def show_return(play: Play, stage: Stage) -> None:
    """The newcomers end; everybody who went for them comes back without a hand."""
    stage.chapter(
        "They leave, and everybody comes back",
        f"{CHAT.name}, {BURST.name} and {VISITOR.name} are deleted. Nobody starts anything by hand.",
    )
    missing = {work.name: work.count - len(play.running(work)) for work in RUNNING}
    started = time.monotonic()
    for work in (CHAT, BURST, VISITOR):
        play.end(work)

    def all_back() -> bool:
        play.let_go(_lingering(play))
        return all(len(play.running(work)) == work.count for work in RUNNING)

    stage.wait(all_back, "everybody to be back", instead=lambda: play.absent(RUNNING))
    seconds = time.monotonic() - started
    rows = [(w.name, str(missing[w.name]), str(len(play.running(w))), str(w.count)) for w in RUNNING]
    stage.table(("WORKLOAD", "HAD TO GO", "RUNS NOW", "WANTED"), rows)
    wrong = faults(play.scene.inventories(), play.scene.pods())
    stage.claim(
        "all who had to go run again, without a manual step",
        f"{sum(missing.values())} pods were back within {seconds:.1f} s; {'; '.join(wrong[:3]) or 'no card over'}",
        not wrong,
    )
    stage.wait(lambda: not play.plans(), "the plans to be closed")
    stage.claim("nothing is left behind: every debt is paid", f"{len(play.plans())} plans exist", not play.plans())
