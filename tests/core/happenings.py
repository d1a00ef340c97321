"""Everything that can happen to the world of world.py, by name (scenarios.md 2.11 as far as a ledger sees it).

Each takes the world and two small numbers that choose the object and the variant; what makes no sense at the
moment does nothing. `steps_from` turns random bytes into a run.
"""

from collections.abc import Callable
from dataclasses import replace

from tests.core.building import SLOTS, make_assignment, make_node
from tests.core.world import (
    ENDED,
    MOST_PODS,
    NODES,
    POLICIES,
    REFUSED,
    REQUESTS,
    TAINT,
    Step,
    World,
    alive,
    unbound,
)
from vgpu.core.facts import CardFact, Identity, InventoryFact, Phase, PodFact
from vgpu.core.ledger import Booking
from vgpu.core.placement import Placement, place

Happening = Callable[[World, int, int], None]


def nothing(world: World, a: int, b: int) -> None:
    """A byte that shrinking can always fall back to."""


def node_appears(world: World, a: int, b: int) -> None:
    name = NODES[a % 2]
    if name not in world.truth.nodes:
        world.put_node(make_node(name, 12, uid=f"uid-{name}-{b}"))


def node_goes(world: World, a: int, b: int) -> None:
    world.drop_node(NODES[a % 2])


def node_recreated(world: World, a: int, b: int) -> None:
    name = NODES[a % 2]
    world.drop_node(name)
    world.put_node(make_node(name, 12, uid=f"uid-{name}-again-{b}"))


def node_allocatable(world: World, a: int, b: int) -> None:
    _change_node(world, a, slots_allocatable=make_node("x", (0, 4, 12, 80)[b % 4]).slots_allocatable)


def node_other_facts(world: World, a: int, b: int) -> None:
    """Labels, readiness, taints: stored, never recounted."""
    fields = ({"labels": frozenset({("zone", str(b))})}, {"ready": b % 2 == 0}, {"taints": TAINT})[b % 3]
    before = _recounts(world)
    _change_node(world, a, **fields)
    assert _recounts(world) == before, "I6: nothing about the node's cards changed"


def heartbeat(world: World, a: int, b: int) -> None:
    """Annotations and heartbeats only: the facts are equal to the last ones."""
    before = (_recounts(world), world.ledger.version)
    for node in world.told.nodes.values():
        world.ledger.put_node(replace(node))
    for inventory in world.told.inventories.values():
        world.ledger.put_inventory(replace(inventory))
    for pod in world.told.pods.values():
        world.ledger.put_pod(replace(pod))
    assert (_recounts(world), world.ledger.version) == before, "I6: equal facts are nothing"


def inventory_appears(world: World, a: int, b: int) -> None:
    name = NODES[a % 2]
    if name not in world.truth.inventories:
        cards = world.lost_cards.get(name) or (world.new_card(0),)
        world.put_inventory(InventoryFact(name, SLOTS, cards))


def inventory_goes(world: World, a: int, b: int) -> None:
    inventory = world.truth.inventories.get(NODES[a % 2])
    if inventory is not None:
        world.lost_cards[inventory.node] = inventory.cards
        world.drop_inventory(inventory.node)


def card_added(world: World, a: int, b: int) -> None:
    """A new card, or the one that went last comes back with its UUID."""
    inventory = world.truth.inventories.get(NODES[a % 2])
    if inventory is not None and len(inventory.cards) < 4:
        lost = world.removed.pop(inventory.node, None) if b % 2 else None
        card = lost or world.new_card(len(inventory.cards))
        world.put_inventory(replace(inventory, cards=(*inventory.cards, card)))


def card_removed(world: World, a: int, b: int) -> None:
    inventory = world.truth.inventories.get(NODES[a % 2])
    if inventory is not None and inventory.cards:
        world.removed[inventory.node] = inventory.cards[-1]
        world.put_inventory(replace(inventory, cards=inventory.cards[:-1]))


def card_swapped(world: World, a: int, b: int) -> None:
    _change_card(world, a, b, lambda card: replace(world.new_card(card.index), numa_node=card.numa_node))


def card_health(world: World, a: int, b: int) -> None:
    _change_card(world, a, b, lambda card: replace(card, healthy=not card.healthy))


def card_memory(world: World, a: int, b: int) -> None:
    world.outside = True
    _change_card(world, a, b, lambda card: replace(card, memory_mib=140 - card.memory_mib if b % 3 else 100))


def card_slots(world: World, a: int, b: int) -> None:
    world.outside = True
    _change_card(world, a, b, lambda card: replace(card, slots=5 - card.slots))


def card_model(world: World, a: int, b: int) -> None:
    _change_card(world, a, b, lambda card: replace(card, model=f"model {b}", numa_node=None))


def inventory_malformed(world: World, a: int, b: int) -> None:
    _only_this_node(world, a, problem="" if b % 3 == 0 else "gpus[0].memoryMiB is not a number")


def inventory_read_error(world: World, a: int, b: int) -> None:
    """Two things that an agent may find wrong, one, or none."""
    read_error = "NVML: driver not loaded" if b % 3 == 1 else ""
    isolation_error = "libvgpu.so is not there" if b % 3 == 2 else ""
    _only_this_node(world, a, read_error=read_error, isolation_error=isolation_error)


def inventory_identity(world: World, a: int, b: int) -> None:
    _only_this_node(world, a, identity=Identity.EXACT if b % 4 else Identity.DEFERRED)


def pod_created(world: World, a: int, b: int) -> None:
    if len(world.truth.pods) < MOST_PODS:
        world._count += 1
        uid = f"pod-{world._count}"
        world.put_pod(PodFact(uid, "team", f"job-{a % 4}", wants_gpus=True, request=REQUESTS[b % len(REQUESTS)]))


def pod_bound(world: World, a: int, b: int) -> None:
    booking = world.decide(a, b)
    if booking is not None:
        world.settle(booking, world.carry_out(booking))


def pods_rush_in(world: World, a: int, b: int) -> None:
    """A job's pods arrive together and are bound one after the other, wherever they fit."""
    for number in range(1 + a % 3):
        pod_created(world, a + number, b + number * (a % 5))
        for node in range(2):
            pod_bound(world, a, b + node)


def pod_bind_refused(world: World, a: int, b: int) -> None:
    booking = world.decide(a, b)
    if booking is not None:
        world.settle(booking, carried_out=False)


def pod_bind_unanswered(world: World, a: int, b: int) -> None:
    """Sent, and no answer: carried out or not, now or later; the booking stands until it is known."""
    booking = world.decide(a, b)
    if booking is not None:
        world.flying[booking.uid] = booking


def answer_found(world: World, a: int, b: int) -> None:
    """An unanswered write takes effect, or is known not to."""
    if world.flying:
        uid = sorted(world.flying)[a % len(world.flying)]
        booking = world.flying.pop(uid)
        world.settle(booking, b % 3 != 0 and world.carry_out(booking))


def pod_event_without_node(world: World, a: int, b: int) -> None:
    """The scheduler writes a condition: no word of a node, so no booking ends."""
    booked = {booking.uid for booking in world.ledger.bookings()}
    world.change_pod(a, unbound, unschedulable=b % 2 == 0, unschedulable_message=f"try {b}")
    assert {booking.uid for booking in world.ledger.bookings()} == booked, "I3: no event has shown it bound"


def pod_admitted(world: World, a: int, b: int) -> None:
    running = {"phase": Phase.RUNNING, "ever_ran": True, "container_running": True} if b % 2 else {}
    world.change_pod(a, lambda pod: alive(pod) and not pod.ever_ran, admitted=True, **running)


def container_restarts(world: World, a: int, b: int) -> None:
    world.change_pod(a, lambda p: alive(p) and p.phase is Phase.RUNNING, container_running=b % 2 == 0)


def pod_ends(world: World, a: int, b: int) -> None:
    """Its phase says that it is over; in half of the cases a container still runs."""
    world.change_pod(a, alive, phase=ENDED[b % 2], container_running=b % 4 < 2, admitted=True)


def last_container_ends(world: World, a: int, b: int) -> None:
    world.change_pod(a, lambda pod: pod.phase in ENDED, container_running=False)


def pod_deletion_mark(world: World, a: int, b: int) -> None:
    world.change_pod(a, lambda pod: True, terminating=True)


def pod_gone(world: World, a: int, b: int) -> None:
    pod = world.pick(a, lambda pod: True)
    if pod is not None:
        world.drop_pod(pod.uid)


def pod_refused_by_kubelet(world: World, a: int, b: int) -> None:
    failed = {"phase": Phase.FAILED, "unexpected_admission": True, "admitted": True, "container_running": False}
    world.change_pod(a, lambda pod: alive(pod) and not pod.admitted, **failed)


def old_pod_runs(world: World, a: int, b: int) -> None:
    if len(world.truth.pods) < MOST_PODS:
        world.outside = True
        world.put_pod(world.legacy_assignment(NODES[a % 2], b))


def other_leader_binds(world: World, a: int, b: int) -> None:
    """Two at once: the other one decided on facts that had neither our bookings nor the latest events."""
    pod = world.pick(a, unbound)
    twin = world.make()
    for node in world.told.nodes.values():
        twin.put_node(node)
    for inventory in world.told.inventories.values():
        twin.put_inventory(inventory)
    view = twin.view(NODES[b % 2])
    if pod is None or pod.request is None or view is None:
        return
    placement = place(view, pod.request, pod.uid, POLICIES)
    if isinstance(placement, Placement):
        world.outside = True
        world.carry_out(_foreign(pod, placement))


def bound_without_assignment(world: World, a: int, b: int) -> None:
    world.change_pod(a, unbound, node=NODES[b % 2], assignment=None, ever_ran=b % 3 == 0)


def assigned_where_it_is(world: World, a: int, b: int) -> None:
    """A pod bound without an assignment, that never ran, gets one: booked at once, shown by a later event."""
    late = {pod.uid for pod in world.told.pods.values() if _assignable(pod)} - set(world.late)
    pod = world.pick(a, lambda pod: pod.uid in late and _assignable(pod))
    if pod is not None:
        booking = world.decide_for(pod, pod.node)
        if booking is not None:
            world.late[pod.uid] = booking


def late_assignment_shown(world: World, a: int, b: int) -> None:
    """The event of it comes, or only some other event of the pod, which ends nothing."""
    pod = world.pick(a, lambda pod: pod.uid in world.late)
    if pod is None or not _assignable(pod):
        return
    if b % 3 == 0:
        world.put_pod(replace(pod, admitted=True, unschedulable_message=f"event {b}"))
        return
    containers = world.late[pod.uid].placement.containers
    world.put_pod(replace(pod, assignment=make_assignment(*containers, node=pod.node)))


def pod_malformed(world: World, a: int, b: int) -> None:
    """A pod that cannot be read is refused alone: nobody else's view moves."""
    views = {name: world.ledger.view(name) for name in NODES}
    if len(world.truth.pods) < MOST_PODS:
        world._count += 1
        world.put_pod(PodFact(f"bad-{world._count}", "team", "bad", wants_gpus=True, refusal=REFUSED))
    assert {name: world.ledger.view(name) for name in NODES} == views, "I14: one bad pod disturbs no other"


def agent_pod(world: World, a: int, b: int) -> None:
    name = NODES[a % 2]
    uid = f"agent-{name}"
    if b % 3 == 0:
        world.drop_pod(uid)
    else:
        world.put_pod(PodFact(uid, "vgpu-system", uid, node=name, agent_pod_ready=b % 3 == 1))


def watch_stalls(world: World, a: int, b: int) -> None:
    world.gap = True


def relist(world: World, a: int, b: int) -> None:
    world.relist()


def operator_restarts(world: World, a: int, b: int) -> None:
    world.restart()


def events_repeated(world: World, a: int, b: int) -> None:
    """Echo of an own write, ADDED after a relist: the same fact again."""
    pod = world.pick(a, lambda pod: pod.uid in world.told.pods)
    if pod is not None:
        world.ledger.put_pod(replace(world.told.pods[pod.uid]))


def events_reordered(world: World, a: int, b: int) -> None:
    """An older event of a pod comes late, then the newest again."""
    pod = world.pick(a, lambda pod: pod.uid in world.told.pods)
    if pod is not None and not world.gap:
        world.ledger.put_pod(world.older[pod.uid])
        world.ledger.put_pod(pod)


def changes_taken(world: World, a: int, b: int) -> None:
    """The consumer looks; nodes that are gone for good are forgotten then."""
    world.ledger.take_changes()
    assert world.ledger.take_changes().nodes == frozenset()


def nominated(world: World, a: int, b: int) -> None:
    pods = [pod for pod in world.ledger.pending() if pod.request and not world.ledger.booking(pod.uid)]
    view = world.ledger.view(NODES[b % 2])
    if pods and view is not None:
        pod = pods[a % len(pods)]
        assert pod.request is not None
        placement = place(view, pod.request, pod.uid, POLICIES)
        if isinstance(placement, Placement):
            world.ledger.nominate(pod.uid, view.name, placement)


def nomination_ends(world: World, a: int, b: int) -> None:
    for pod in list(world.ledger.pending())[a % 3 :: 3]:
        world.ledger.drop_nomination(pod.uid)


def _assignable(pod: PodFact) -> bool:
    bare = bool(pod.node) and pod.wants_gpus and pod.assignment is None
    return bare and not (pod.ever_ran or pod.ended or pod.terminating)


def _recounts(world: World) -> int:
    """Recounts so far, with nothing left to recount: they are done when a node is asked for."""
    for name in NODES:
        world.ledger.view(name)
    return world.ledger.recounts


def _change_node(world: World, a: int, **fields: object) -> None:
    node = world.truth.nodes.get(NODES[a % 2])
    if node is not None:
        world.put_node(replace(node, **fields))  # type: ignore[arg-type]  # the callers name real fields


def _change_card(world: World, a: int, b: int, change: Callable[[CardFact], CardFact]) -> None:
    inventory = world.truth.inventories.get(NODES[a % 2])
    if inventory is not None and inventory.cards:
        at = b % len(inventory.cards)
        cards = [change(card) if position == at else card for position, card in enumerate(inventory.cards)]
        world.put_inventory(replace(inventory, cards=tuple(cards)))


def _only_this_node(world: World, a: int, **fields: object) -> None:
    other = NODES[(a + 1) % 2]
    view = world.ledger.view(other)
    inventory = world.truth.inventories.get(NODES[a % 2])
    if inventory is not None:
        world.put_inventory(replace(inventory, **fields))  # type: ignore[arg-type]  # as above
    assert world.ledger.view(other) == view, "I14: one bad inventory disturbs no other node"


def _foreign(pod: PodFact, placement: Placement) -> Booking:
    return Booking(pod.uid, pod.namespace, pod.name, placement.node, "foreign", placement)


HAPPENINGS: dict[str, Happening] = {
    happening.__name__: happening
    for happening in (
        nothing,
        node_appears,
        node_goes,
        node_recreated,
        node_allocatable,
        node_other_facts,
        heartbeat,
        inventory_appears,
        inventory_goes,
        card_added,
        card_removed,
        card_swapped,
        card_health,
        card_memory,
        card_slots,
        card_model,
        inventory_malformed,
        inventory_read_error,
        inventory_identity,
        pod_created,
        pod_bound,
        pods_rush_in,
        pod_bind_refused,
        pod_bind_unanswered,
        answer_found,
        pod_event_without_node,
        pod_admitted,
        container_restarts,
        pod_ends,
        last_container_ends,
        pod_deletion_mark,
        pod_gone,
        pod_refused_by_kubelet,
        old_pod_runs,
        other_leader_binds,
        bound_without_assignment,
        assigned_where_it_is,
        late_assignment_shown,
        pod_malformed,
        agent_pod,
        watch_stalls,
        relist,
        operator_restarts,
        events_repeated,
        events_reordered,
        changes_taken,
        nominated,
        nomination_ends,
    )
}
_OFTEN = (
    *(["pod_created", "pod_bound"] * 5),
    *(["pods_rush_in"] * 8),
    *(["nominated", "pod_deletion_mark", "pod_bind_unanswered", "pod_admitted"] * 2),
    *["bound_without_assignment", "assigned_where_it_is", "late_assignment_shown"],
    *["inventory_appears", "node_appears", "relist"] * 2,
)
_DEALT = (*HAPPENINGS, *_OFTEN)


def steps_from(data: bytes) -> list[Step]:
    """Three bytes make a step; 0 is nothing."""
    triples = zip(data[::3], data[1::3], data[2::3], strict=False)
    return [(_DEALT[op % len(_DEALT)], a % 12, b % 12) for op, a, b in triples]
