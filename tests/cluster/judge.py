"""An observer that shares no code with the product: at every watch event it adds up what each card holds.

Enters: the pods of the API server, list and watch, one event after the other, and what the nodes' cards are.
Leaves: a list of violations, empty when the invariants held at every observed event. May not live here: anything
of the product but the spelling of its annotation and of the resources that users write.
"""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from devcluster.access import ClusterAccess
from devcluster.observe import RELISTED, TIMEOUT_SECONDS, Observer

ASSIGNMENT = "vgpu.dev/assignment"
VOLCANO = tuple(f"volcano.sh/vgpu-{kind}" for kind in ("number", "memory", "memory-percentage", "cores"))
HAMI = tuple(f"nvidia.com/{kind}" for kind in ("gpu", "gpumem", "gpumem-percentage", "gpucores"))
"""Each preset's names for: cards, MiB of each, percent of each card's memory, cores of each."""
CATCH_UP_SECONDS = 60.0
LOOK_SECONDS = 0.05
Pod = dict[str, Any]


@dataclass(frozen=True)
class Limits:
    """What one card of the test's nodes has."""

    memory_mib: int
    slots: int
    cores: int = 100


@dataclass(frozen=True)
class Share:
    """What one container holds of one card."""

    pod: str
    node: str
    uuid: str
    memory_mib: int
    cores: int
    alone: bool


@dataclass
class Load:
    """What the pods seen so far hold of one card."""

    memory_mib: int = 0
    cores: int = 0
    slots: int = 0
    alone: int = 0
    holders: list[str] = field(default_factory=list)

    def add(self, share: Share) -> None:
        self.memory_mib += share.memory_mib
        self.cores += share.cores
        self.slots += 1
        self.alone += share.alone
        self.holders.append(share.pod)

    def over(self, limits: Limits) -> bool:
        return (
            self.memory_mib > limits.memory_mib
            or self.cores > limits.cores
            or self.slots > limits.slots
            or (self.alone > 0 and self.slots > 1)
        )


class Judge:
    """Context manager; watches until the block ends. Ask `verdict()` at the end."""

    def __init__(self, cluster: ClusterAccess, limits: Limits, uuids_of_node: Mapping[str, Set[str]]) -> None:
        self._cluster = cluster
        self._observer = Observer(cluster.kubeconfig(), "/api/v1/pods")
        self._limits = limits
        self._uuids = uuids_of_node
        self._versions: dict[str, str] = {}
        self._shares: dict[str, tuple[Share, ...]] = {}
        self._on_node: dict[str, set[str]] = defaultdict(set)
        self._first: dict[str, tuple[str, str]] = {}
        self.bound_by_hand: set[str] = set()
        """NAMESPACE/NAME of pods that a test binds itself: they may be given cards later, once."""
        self.violations: list[str] = []
        self.events = 0
        self.relists = 0
        self._thread = threading.Thread(target=self._run, name="judge", daemon=True)

    def __enter__(self) -> "Judge":
        self._thread.start()
        self._wait_caught_up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._observer.stop.set()
        self._thread.join(2 * TIMEOUT_SECONDS)

    def verdict(self) -> list[str]:
        """Every violation so far, once the judge has seen all that the API server has now."""
        self._wait_caught_up()
        return list(self.violations)

    def has_seen_bound(self, uids: Iterable[str]) -> bool:
        """Whether each of these pods was seen bound, whatever became of it since."""
        return all(uid in self._first for uid in uids)

    def _wait_caught_up(self) -> None:
        wanted, relists = self._there_are(), self.relists
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while not self._has_seen(wanted):
            if relists != self.relists:  # what went while nobody watched is in no event and in no list
                wanted, relists = self._there_are(), self.relists
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise AssertionError("the judge does not see the pods that are there: its word is worth nothing")
            time.sleep(LOOK_SECONDS)

    def _there_are(self) -> dict[str, str]:
        items = self._cluster.api.get("/api/v1/pods")["items"]
        return {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in items}

    def _has_seen(self, wanted: Mapping[str, str]) -> bool:
        return self.relists > 0 and all(int(self._versions.get(uid, "0")) >= int(wanted[uid]) for uid in wanted)

    def _run(self) -> None:
        try:
            for kind, pod in self._observer.events():
                self._fold(kind, pod)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            # An object that it does not understand: a judge that died must never read as "no violations".
            self._say(f"the judge broke: {error!r}")

    def _fold(self, kind: str, pod: Pod) -> None:
        if kind == RELISTED:
            self.relists += 1
            self._versions.clear()
            self._shares.clear()
            self._on_node.clear()
            return
        self.events += 1
        uid = pod["metadata"]["uid"]
        if kind == "DELETED":
            for share in self._shares.pop(uid, ()):
                self._on_node[share.node].discard(uid)
        else:
            self._take(uid, pod)
        self._versions[uid] = pod["metadata"]["resourceVersion"]  # only now: whoever waits reads the violations

    def _take(self, uid: str, pod: Pod) -> None:
        node = pod["spec"].get("nodeName")
        if not node:
            return
        text = (pod["metadata"].get("annotations") or {}).get(ASSIGNMENT, "")
        if not text and _name(pod) in self.bound_by_hand:
            return
        if uid not in self._first:
            self._first[uid] = (node, text)
            self._check_pod(uid, pod, text)
        elif self._first[uid] != (node, text):
            self._say(f"{_name(pod)}: node or assignment changed from {self._first[uid]} to {node} {text}")
        ended = pod["status"].get("phase") in ("Succeeded", "Failed")
        shares = () if ended else tuple(shares_of(pod))
        if self._shares.get(uid) != shares:
            self._shares[uid] = shares
            change = self._on_node[node].add if shares else self._on_node[node].discard
            change(uid)
            self._check_node(node)

    def _check_pod(self, uid: str, pod: Pod, text: str) -> None:
        wanted = [found for container in pod["spec"]["containers"] if (found := _wanted(container, self._limits))]
        if not wanted and not text:
            return
        if not text:
            self._say(f"{_name(pod)}: bound without cards")
            return
        if pod["spec"].get("initContainers"):
            self._say(f"{_name(pod)}: this judge cannot add up init containers")
        assignment = json.loads(text)
        if assignment["podUid"] != uid or assignment["node"] != pod["spec"]["nodeName"]:
            self._say(f"{_name(pod)}: the assignment names another pod or node: {text}")
        given = [_given(container) for container in assignment["containers"]]
        if given != wanted:
            self._say(f"{_name(pod)}: wants {wanted} and was given {given}")
        for container in assignment["containers"]:
            uuids = [card["uuid"] for card in container["cards"]]
            if len(set(uuids)) != len(uuids):
                self._say(f"{_name(pod)}: container {container['name']} has a card twice: {uuids}")

    def _check_node(self, node: str) -> None:
        loads: dict[str, Load] = defaultdict(Load)
        for uid in self._on_node[node]:
            for share in self._shares[uid]:
                loads[share.uuid].add(share)
        for uuid, load in loads.items():
            if uuid not in self._uuids.get(node, set()):
                self._say(f"{node}: {load.holders} hold {uuid}, which is not a card of it")
            if load.over(self._limits):
                self._say(f"{node}/{uuid} is over its limits: {load}")

    def _say(self, violation: str) -> None:
        if violation not in self.violations:
            self.violations.append(violation)


def shares_of(pod: Pod) -> list[Share]:
    """What a bound pod's assignment holds; nothing when it is not bound or has none."""
    node = pod["spec"].get("nodeName")
    text = (pod["metadata"].get("annotations") or {}).get(ASSIGNMENT)
    if not node or text is None:
        return []
    return [
        Share(
            _name(pod), node, card["uuid"], card["memoryMiB"], card["cores"], card["whole"] or card["cores"] >= 100
        )
        for container in json.loads(text)["containers"]
        for card in container["cards"]
    ]


def _name(pod: Pod) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


Amounts = tuple[str, int, int, int]
"""Container, cards, MiB of each, cores of each."""


def _wanted(container: Mapping[str, Any], limits: Limits) -> Amounts | None:
    """What a container asks for, by the presets' own rules; None for no GPU."""
    asked = container.get("resources", {}).get("limits", {})
    for preset in (VOLCANO, HAMI):
        number, memory, percent, cores = (_integer(asked.get(name, "0")) for name in preset)
        if number:
            memory = memory or limits.memory_mib
            if percent:
                memory = limits.memory_mib * percent // 100
            return container["name"], number, memory, cores
    return None


def _integer(quantity: str) -> int:
    """The API server writes whole thousands as 1k."""
    return int(quantity[:-1]) * 1000 if quantity.endswith("k") else int(quantity)


def _given(container: Mapping[str, Any]) -> Amounts | str:
    amounts = {(card["memoryMiB"], card["cores"]) for card in container["cards"]}
    if len(amounts) != 1:
        return f"{container['name']}: {container['cards']}"
    [(memory_mib, cores)] = amounts
    return container["name"], len(container["cards"]), memory_mib, cores
