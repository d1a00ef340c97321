"""S86 on a real control plane: 200 nodes of 8 cards full of 1,600 low pods, and pods of an entitled queue want in.

Twenty come one after another, each alone on a quiet cluster, then a hundred at once. A decision takes from
kube-scheduler's word that the pod fits nowhere to the first eviction asked for it, by the API server's clock.
Beside it stands the creation to bound of plain pods on the same cluster: the median of twenty that come alone, and
those of a hundred created at once. Writes are all that the operator made for one preemptor until nothing is owed
any more, beside what it may: victims + 6.
"""

import math
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median

from benchmarks.full_cluster import ALL, SET_SIZE, Scene, full_cluster, pod
from benchmarks.results import Result
from devcluster.operators import OPERATOR
from tests.cluster.preempt.trace import History, histories

ALONE, HUNDRED = 20, 100
TARGET_MS = {50: 100, 99: 500}
"""By percentile, of one preemptor (preemption.md 3)."""


def run() -> list[Result]:
    """All figures."""
    with full_cluster() as scene:
        scene.start_low()
        together = plain(scene, HUNDRED)
        scene.scale_last(SET_SIZE - 1)
        single = median(waiting(one) for _ in range(ALONE) for one in plain(scene, 1))
        scene.scale_last(SET_SIZE)
        one_by_one = alone(scene)
        results = deciding("S86 decision alone", one_by_one, dict.fromkeys(TARGET_MS, single))
        many = hundred(scene)
        results += the_hundred(together, many)
        scene.end_low()
        scene.wait_no_plans()
        many = trace(scene, 0, {one.name: one.uid for one in many})
        return [*results, *the_rules(scene, many), writes([*one_by_one, *many])]


def only_the_hundred() -> list[Result]:
    """The hundred at once, without those that come alone, and without the writes for what is owed afterwards."""
    with full_cluster() as scene:
        scene.start_low()
        together = plain(scene, HUNDRED)
        scene.scale_last(SET_SIZE)
        many = hundred(scene)
        return [*the_hundred(together, many), *the_rules(scene, many)]


def the_hundred(together: Sequence[History], many: Sequence[History]) -> list[Result]:
    """A hundred preemptors beside a hundred plain pods."""
    at_once = {percent: percentile(map(waiting, together), percent) for percent in TARGET_MS}
    results = deciding("S86 decision of a hundred", many, at_once)
    return [*results, Result("S86 hundred bound", until_last(many), until_last(together), "s", load())]


def the_rules(scene: Scene, many: Sequence[History]) -> list[Result]:
    """Victims of the hundred, and what was wrong at any event so far."""
    broken, seen = scene.recorder.verdict("default"), scene.recorder.judge.events
    for line in broken:
        print(line, file=sys.stderr)
    judged = f"every card added up at each of {seen} events of pods"
    return [
        Result("S86 victims", sum(len(one.victims) for one in many), HUNDRED, "pods"),
        Result("S86 rules broken", len(broken), 1, "", judged),
    ]


def plain(scene: Scene, count: int) -> list[History]:
    """So many low pods at once for which there is room; they are deleted again."""
    since = scene.wait_quiet()
    uids = scene.create([pod(f"plain-{time.monotonic_ns()}-{number}", "low") for number in range(count)])
    scene.delete(list(uids))
    return trace(scene, since, uids)


def alone(scene: Scene) -> list[History]:
    """Preemptors one by one; each is deleted, and its victim's successor bound, before the next comes."""
    found = []
    for number in range(ALONE):
        since = scene.wait_quiet()
        uids = scene.create([pod(f"alone-{number}", "high")])
        scene.delete(list(uids))
        scene.wait_low(ALL)
        scene.wait_no_plans()
        found += trace(scene, since, uids)
    say("alone", found)
    return found


def hundred(scene: Scene) -> list[History]:
    """Preemptors created at once, until the last is bound."""
    since, spent = scene.wait_quiet(), scene.cluster.usage(OPERATOR).cpu_seconds
    uids = scene.create([pod(f"high-{number}", "high") for number in range(HUNDRED)])
    spent = scene.cluster.usage(OPERATOR).cpu_seconds - spent
    found = trace(scene, since, uids)
    say(f"a hundred at once ({spent:.1f} s of the operator's processor time)", found)
    return found


def trace(scene: Scene, since: int, uids: dict[str, str]) -> list[History]:
    """What became of these pods since a position of the audit log."""
    return histories(scene.cluster.audit_events(since).events, uids, scene.recorder.plans)


def waiting(one: History) -> float:
    """Creation to bound."""
    return one.bound - one.created


def until_last(found: Sequence[History]) -> float:
    """From the first one's creation to the last one's binding."""
    return max(one.bound for one in found) - min(one.created for one in found)


def deciding(name: str, found: Sequence[History], references: Mapping[int, float]) -> list[Result]:
    """Median and 99th percentile, each beside its reference (seconds)."""
    results = []
    for percent, target_ms in TARGET_MS.items():
        ours = 1000 * percentile([one.deciding_seconds for one in found], percent)
        created = 1000 * percentile([one.evicted - one.created for one in found], percent)
        note = f"target for one: {target_ms} ms; from creation {created:.0f} ms; {len(found)} pods, {load()}"
        results.append(Result(f"{name}, p{percent}", ours, 1000 * references[percent], "ms", note))
    return results


def writes(found: Sequence[History]) -> Result:
    """Of the preemptor that took most, beside what it may."""
    most = max(found, key=lambda one: one.writes.total() - one.writes_allowed)
    mean = sum(one.writes.total() for one in found) / len(found)
    note = f"most of {len(found)}, mean {mean:.2f}: " + ", ".join(f"{n} {what}" for what, n in most.writes.items())
    return Result("S86 writes per preemptor", most.writes.total(), most.writes_allowed, "writes", note)


def say(what: str, found: Sequence[History]) -> None:
    """Where the time went, step by step."""
    steps = ("created", "refused", "planned", "evicted", "bound")
    parts = []
    for before, after in pairwise(steps):
        taken = [1000 * (getattr(one, after) - getattr(one, before)) for one in found]
        parts.append(f"{before} to {after} {median(taken):.0f} (p99 {percentile(taken, 99):.0f})")
    print(f"{what}, ms at the median: {'; '.join(parts)}; {load()}", file=sys.stderr, flush=True)


def percentile(figures: Iterable[float], percent: int) -> float:
    """The least figure that so many percent are not above."""
    ordered = sorted(figures)
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


def load() -> str:
    """How busy the machine was in the last minute."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
