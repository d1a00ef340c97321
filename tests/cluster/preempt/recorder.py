"""Watches pods, plans and inventories from the start and judges every event: nothing is looked at in passing.

Enters: a cluster, what its cards are. Leaves: violations, empty when the rules held at every observed event: cards
within their limits, whole cards alone, inventories that never show more than a card has, and one set of victims
for each pod that somebody was evicted for. May not live here: anything of the product but names.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from devcluster.access import ClusterAccess
from devcluster.observe import RELISTED, TIMEOUT_SECONDS, Observer
from tests.cluster.judge import CATCH_UP_SECONDS, LOOK_SECONDS, Judge, Limits
from vgpu import names

PLANS = f"/apis/{names.API_VERSION}/{names.PREEMPTION_PLURAL}"
INVENTORIES = f"/apis/{names.API_VERSION}/{names.INVENTORY_PLURAL}"
Json = dict[str, Any]
Fold = Callable[[str, Json], None]


class _Watch:
    """Folds every event of one collection; ask `catch_up` before reading what came of it."""

    def __init__(self, cluster: ClusterAccess, path: str, fold: Fold) -> None:
        self._cluster, self._path, self._fold = cluster, path, fold
        self._observer = Observer(cluster.kubeconfig(), path)
        self._seen: dict[str, int] = {}
        self._listed = threading.Event()
        self.broken = ""
        self._thread = threading.Thread(target=self._run, name=f"recorder of {path}", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self.catch_up()

    def stop(self) -> None:
        self._observer.stop.set()
        self._thread.join(2 * TIMEOUT_SECONDS)

    def catch_up(self) -> None:
        """Wait until all is seen that the API server has now."""
        items = self._cluster.api.get(self._path)["items"]
        wanted = {item["metadata"]["uid"]: int(item["metadata"]["resourceVersion"]) for item in items}
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while not self._has(wanted):
            if self.broken or time.monotonic() > deadline:
                raise AssertionError(f"the recorder of {self._path} does not see what is there: {self.broken}")
            time.sleep(LOOK_SECONDS)

    def _has(self, wanted: Mapping[str, int]) -> bool:
        return self._listed.is_set() and all(self._seen.get(uid, 0) >= wanted[uid] for uid in wanted)

    def _run(self) -> None:
        try:
            for kind, item in self._observer.events():
                if kind == RELISTED:
                    self._listed.set()
                    continue
                self._fold(kind, item)
                self._seen[item["metadata"]["uid"]] = int(item["metadata"]["resourceVersion"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self.broken = repr(error)


@dataclass(frozen=True, slots=True)
class PlanSeen:
    """One GpuPreemption as it was created. Victims are (uid, name)."""

    uid: str
    namespace: str
    name: str
    owners: frozenset[str]
    victims: frozenset[tuple[str, str]]
    cards: frozenset[tuple[str, str]]
    rule: str
    exact: bool


class Recorder:
    """Context manager; records until the block ends. Ask `verdict()` at the end."""

    def __init__(self, cluster: ClusterAccess, limits: Limits, uuids_of_node: Mapping[str, Set[str]]) -> None:
        self.judge = Judge(cluster, limits, uuids_of_node)
        self.plans: list[PlanSeen] = []
        self.statuses: dict[str, list[Json]] = defaultdict(list)
        """Every status that each plan had, by uid, oldest first."""
        self.over: list[str] = []
        self._watches = (
            _Watch(cluster, PLANS, self._fold_plan),
            _Watch(cluster, INVENTORIES, self._fold_inventory),
        )

    def __enter__(self) -> "Recorder":
        self.judge.__enter__()
        for watch in self._watches:
            watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for watch in self._watches:
            watch.stop()
        self.judge.__exit__(kind, error, trace)

    def mark(self) -> tuple[int, int]:
        """What was recorded so far is not to be said again."""
        return len(self.judge.violations), len(self.over)

    def verdict(
        self, namespace: str, since: tuple[int, int] = (0, 0), may_plan_again: Set[str] = frozenset()
    ) -> list[str]:
        """Every violation since a mark. `may_plan_again`: uids of pods that lose their cards in the scenario."""
        for watch in self._watches:
            watch.catch_up()
        broken = [watch.broken for watch in self._watches if watch.broken]
        second = self._second_sets(namespace, may_plan_again)
        return [*self.judge.verdict()[since[0] :], *self.over[since[1] :], *broken, *second]

    def plans_for(self, uid: str) -> list[PlanSeen]:
        """Plans that were made for a pod, oldest first."""
        return [plan for plan in self.plans if uid in plan.owners]

    def _second_sets(self, namespace: str, may_plan_again: Set[str]) -> list[str]:
        sets: dict[str, list[frozenset[tuple[str, str]]]] = defaultdict(list)
        for plan in (plan for plan in self.plans if plan.namespace == namespace):
            for owner in plan.owners - may_plan_again if plan.victims else ():  # some only hold what leaves anyway
                sets[owner].append(plan.victims)
        return [
            f"{owner}: {len(found)} sets of victims: {found}" for owner, found in sets.items() if len(found) > 1
        ]

    def _fold_plan(self, kind: str, plan: Json) -> None:
        uid = plan["metadata"]["uid"]
        if uid not in {known.uid for known in self.plans}:
            self.plans.append(_plan_seen(plan))
        if kind != "DELETED":
            self.statuses[uid].append(plan.get("status", {}))

    def _fold_inventory(self, kind: str, item: Json) -> None:
        if kind == "DELETED":
            return
        cards = {gpu["uuid"]: gpu for gpu in item["spec"]["gpus"]}
        for shown in item.get("status", {}).get("gpus", ()):
            card = cards.get(shown["uuid"])
            if card is not None:
                self._check_card(item["metadata"]["name"], card, shown.get("holders", ()))

    def _check_card(self, node: str, card: Json, holders: list[Json]) -> None:
        for what, field in (("slots", "slots"), ("MiB", "memoryMiB"), ("cores", "cores")):
            used = sum(holder[field] for holder in holders)
            if used > card[field]:
                held = [holder["name"] for holder in holders]
                self.over.append(f"{node}/{card['uuid']} shows {used} {what} of {card[field]} held by {held}")


def _plan_seen(plan: Json) -> PlanSeen:
    spec, metadata = plan["spec"], plan["metadata"]
    return PlanSeen(
        metadata["uid"],
        metadata["namespace"],
        metadata["name"],
        frozenset(spec["owner"]["uids"]),
        frozenset((victim["uid"], victim["name"]) for victim in spec.get("victims", ())),
        frozenset((held["node"], held["card"]) for held in spec["reservations"]),
        spec["rule"],
        spec["exact"],
    )
