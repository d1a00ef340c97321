"""A ledger and a roster that are told the same events, and the truth to build them anew from."""

from dataclasses import dataclass, field, replace
from random import Random

from tests.core.building import SLOTS, make_card, make_inventory, make_node, make_request, want
from vgpu.core.facts import (
    AssignedCard,
    AssignedContainer,
    AssignmentFact,
    AssignmentSource,
    InventoryFact,
    NodeFact,
    Phase,
    PodFact,
    Scheduling,
)
from vgpu.core.ledger import Booking, Ledger
from vgpu.core.placement import Placement
from vgpu.core.preempt.budget_book import BudgetFact, LabelRule
from vgpu.core.preempt.facts import Limits, QueueFact, StopPolicy
from vgpu.core.preempt.roster import Roster
from vgpu.core.request import ContainerKind
from vgpu.core.terms import GroupFact, GroupName, GroupSource, OwnerRef, PodTerms

NODES = ("n1", "n2", "n3")
QUEUES = ("default", "a", "b")
GROUPS = tuple(GroupName(source, "team", "g") for source in GroupSource)
REQUESTS = (make_request(want(1, 8_000)), make_request(want(2)), make_request(want(1, 60_000)))


@dataclass
class Truth:
    """All objects that there are."""

    nodes: dict[str, NodeFact] = field(default_factory=dict)
    pods: dict[str, PodFact] = field(default_factory=dict)
    inventories: dict[str, InventoryFact] = field(default_factory=dict)
    queues: dict[str, QueueFact] = field(default_factory=dict)
    namespaces: dict[str, str] = field(default_factory=dict)
    groups: dict[str, GroupFact] = field(default_factory=dict)
    classes: dict[str, int] = field(default_factory=dict)
    budgets: dict[str, BudgetFact] = field(default_factory=dict)
    bookings: dict[str, Booking] = field(default_factory=dict)
    evicted: set[str] = field(default_factory=set)
    inactive: dict[str, str] = field(default_factory=dict)
    evictions: dict[str, int] = field(default_factory=dict)


class Told:
    """A ledger and a roster that hear of each change of the truth."""

    def __init__(self, truth: Truth | None = None) -> None:
        self.truth = Truth()
        self.ledger = Ledger()
        self.roster = Roster(self.ledger)
        for name in NODES:
            self.put_node(make_node(name, cpu_millicores=64_000, memory_mib=64_000, pods=110))
        if truth is not None:
            _tell(self, truth)

    def put_node(self, fact: NodeFact) -> None:
        self.truth.nodes[fact.name] = fact
        self.ledger.put_node(fact)

    def put_pod(self, pod: PodFact) -> None:
        self.truth.pods[pod.uid] = pod
        self.ledger.put_pod(pod)
        self.roster.put_pod(pod)
        if self.ledger.booking(pod.uid) is None:
            self.truth.bookings.pop(pod.uid, None)

    def drop_pod(self, uid: str) -> None:
        for known in (self.truth.pods, self.truth.bookings, self.truth.inactive, self.truth.evictions):
            known.pop(uid, None)
        self.truth.evicted.discard(uid)
        self.ledger.drop_pod(uid)
        self.roster.drop_pod(uid)

    def put_inventory(self, fact: InventoryFact) -> None:
        self.truth.inventories[fact.node] = fact
        self.ledger.put_inventory(fact)
        self.roster.cards_changed(fact.node)

    def drop_inventory(self, node: str) -> None:
        self.truth.inventories.pop(node, None)
        self.ledger.drop_inventory(node)
        self.roster.cards_changed(node)

    def put_queue(self, queue: QueueFact) -> None:
        self.truth.queues[queue.name] = queue
        self.roster.put_queue(queue)

    def drop_queue(self, name: str) -> None:
        self.truth.queues.pop(name, None)
        self.roster.drop_queue(name)

    def put_namespace(self, name: str, queue: str) -> None:
        self.truth.namespaces[name] = queue
        self.roster.put_namespace(name, queue)

    def put_group(self, fact: GroupFact) -> None:
        self.truth.groups[fact.name.key] = fact
        self.roster.put_group(fact)

    def drop_group(self, key: str) -> None:
        self.truth.groups.pop(key, None)
        self.roster.drop_group(key)

    def put_class(self, name: str, priority: int | None) -> None:
        self.truth.classes.pop(name, None)
        if priority is not None:
            self.truth.classes[name] = priority
        self.roster.put_class(name, priority)

    def put_budget(self, fact: BudgetFact) -> None:
        self.truth.budgets[fact.key] = fact
        self.roster.put_budget(fact)

    def drop_budget(self, key: str) -> None:
        self.truth.budgets.pop(key, None)
        self.roster.drop_budget(key)

    def book(self, booking: Booking) -> None:
        self.truth.bookings[booking.uid] = booking
        self.ledger.book(booking)

    def unbook(self, uid: str) -> None:
        booking = self.truth.bookings.pop(uid)
        self.ledger.unbook(uid, booking.nonce)

    def mark_evicted(self, uid: str) -> None:
        self.truth.evicted.add(uid)
        self.roster.mark_evicted(uid)

    def set_inactive(self, uid: str, why: str) -> None:
        self.truth.inactive[uid] = why
        self.roster.set_inactive(uid, why)

    def set_evictions(self, uid: str, count: int) -> None:
        self.truth.evictions[uid] = count
        self.roster.set_evictions(uid, count)


def _tell(it: Told, truth: Truth) -> None:
    """The truth as events, in an order of no meaning."""
    for node in truth.nodes.values():
        it.put_node(node)
    for key, pod in truth.pods.items():
        it.put_pod(pod)
        if key in truth.bookings:
            it.book(truth.bookings[key])
    for queue in truth.queues.values():
        it.put_queue(queue)
    for name, named in truth.namespaces.items():
        it.put_namespace(name, named)
    for group in truth.groups.values():
        it.put_group(group)
    for name, value in truth.classes.items():
        it.put_class(name, value)
    for budget in truth.budgets.values():
        it.put_budget(budget)
    for uid in truth.evicted:
        it.mark_evicted(uid)
    for uid, why in truth.inactive.items():
        it.set_inactive(uid, why)
    for uid, count in truth.evictions.items():
        it.set_evictions(uid, count)
    for inventory in truth.inventories.values():
        it.put_inventory(inventory)


def assigned(node: str, *cards: AssignedCard) -> AssignmentFact:
    containers = (AssignedContainer("main", ContainerKind.APP, cards),)
    return AssignmentFact(AssignmentSource.VGPU, node, "nonce", containers)


def random_pod(random: Random, uid: str) -> PodFact:
    """A waiting pod, with or without GPUs."""
    gpus = random.random() < 0.8
    selector = random.choice((frozenset[tuple[str, str]](), frozenset({("zone", random.choice("ab"))})))
    scheduling = Scheduling(selector, cpu_millicores=random.choice((100, 200)), memory_mib=10)
    if not gpus:
        return PodFact(uid, "team", uid, node=random.choice(NODES), scheduling=scheduling)
    gates = random.choice((frozenset[str](), frozenset({"vgpu.dev/gang"}), frozenset({"other"})))
    terms = PodTerms(
        owner=OwnerRef(f"owner-{random.randrange(3)}", "ReplicaSet", "rs")
        if random.random() < 0.7
        else OwnerRef(),
        group=random.choice((None, None, *GROUPS)),
        group_minimum=random.choice((None, 1, 2, 5)),
        created_seconds=random.randrange(100),
        labels=frozenset({("app", random.choice("xy"))}),
        gates=gates,
    )
    return PodFact(
        uid,
        random.choice(("team", "other")),
        uid,
        priority=random.choice((0, 10, 50)),
        gated=bool(gates),
        wants_gpus=True,
        request=random.choice((*REQUESTS, None)),
        queue=random.choice(("", "a", "b", "gone")),
        scheduling=scheduling,
        terms=terms,
    )


def random_event(random: Random, it: Told) -> None:
    """One thing that may happen."""
    events = (*[_pod_event] * 5, _own_event, _card_event, _node_event, _queue_event, _group_event, _budget_event)
    random.choice(events)(random, it)


def _pod_event(random: Random, it: Told) -> None:
    uid = f"p{random.randrange(14)}"
    pod = it.truth.pods.get(uid)
    what = random.randrange(6)
    if pod is None:
        it.put_pod(random_pod(random, uid))
    elif what == 0:
        it.drop_pod(uid)
    elif what == 1:
        it.put_pod(replace(pod, terminating=True))
    elif what == 2:
        it.put_pod(replace(pod, phase=Phase.SUCCEEDED))
    elif not pod.wants_gpus or pod.node or pod.ended:
        return
    elif uid in it.truth.bookings and what == 3:
        it.unbook(uid)
    elif uid not in it.truth.bookings and what == 4:
        node = random.choice(NODES)
        containers = assigned(node, AssignedCard("GPU-0", 8_000, 10, whole=True)).containers
        it.book(Booking(uid, pod.namespace, uid, node, "nonce", Placement(node, containers, 5)))
    else:
        node, card = random.choice(NODES), random.choice(("GPU-0", "GPU-1", "index:1", "lost"))
        assignment = assigned(node, AssignedCard(card, 8_000, 10, whole=False))
        it.put_pod(replace(pod, node=node, assignment=assignment, phase=Phase.RUNNING))


def _own_event(random: Random, it: Told) -> None:
    """What only our own process knows."""
    uid = f"p{random.randrange(14)}"
    pod = it.truth.pods.get(uid)
    if pod is not None and pod.wants_gpus and random.random() < 0.3:
        it.mark_evicted(uid)
    elif pod is not None and random.random() < 0.5:
        it.set_inactive(uid, random.choice(("", "it did not bind")))
    else:
        it.set_evictions(random.choice((uid, "owner-1")) if pod is not None else "owner-1", random.randrange(4))


def _card_event(random: Random, it: Told) -> None:
    node = random.choice(NODES)
    if random.random() < 0.3:
        it.drop_inventory(node)
        return
    memory_mib = random.choice((24_000, 40_000, 80_000))
    cards = [make_card(f"GPU-{i}", i, memory_mib=memory_mib) for i in range(random.choice((1, 2)))]
    it.put_inventory(make_inventory(cards, node, slot_resource=SLOTS))


def _node_event(random: Random, it: Told) -> None:
    known = it.truth.nodes[random.choice(NODES)]
    labels = frozenset({("zone", random.choice("ab"))}) if random.random() < 0.7 else frozenset[tuple[str, str]]()
    it.put_node(replace(known, labels=labels, unschedulable=random.random() < 0.3))


def _queue_event(random: Random, it: Told) -> None:
    if random.random() < 0.3:
        it.put_namespace(random.choice(("team", "other")), random.choice(("", "a", "b")))
        return
    name = random.choice(QUEUES)
    if random.random() < 0.2:
        it.drop_queue(name)
        return
    stop = random.choice((StopPolicy.NONE, StopPolicy.NONE, StopPolicy.HOLD))
    it.put_queue(QueueFact(name, deserved=Limits(random.choice((0, 1000, 3000))), stop_policy=stop))


def _group_event(random: Random, it: Told) -> None:
    name = random.choice(GROUPS[1:])
    match random.randrange(4):
        case 0:
            it.drop_group(name.key)
        case 1:
            it.put_class("high", random.choice((None, 100, 200)))
        case _:
            minimum = random.choice((None, 1, 3))
            priority_class = random.choice(("", "high"))
            it.put_group(GroupFact(name, minimum, random.random() < 0.3, None, priority_class))


def _budget_event(random: Random, it: Told) -> None:
    name = random.choice("cd")
    if random.random() < 0.2:
        it.drop_budget(f"team/{name}")
        return
    rules = random.choice((None, (), (LabelRule("app", "In", frozenset({random.choice("xy")})),)))
    it.put_budget(BudgetFact("team", name, random.randrange(3), rules))
