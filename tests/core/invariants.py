"""The checks of architecture.md 7 that a ledger can break, run after every event of a random world.

Each takes the world and raises AssertionError with the invariant's number. What must be true is counted by
oracle.py, which shares no code with the ledger.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.core.building import make_request, want
from tests.core.oracle import CardUse, count_cards, may_hold
from tests.core.world import NODES, POLICIES, World, fresh_ledger
from vgpu.core.facts import AssignedContainer, CardMode
from vgpu.core.placement import Placement, place
from vgpu.core.reasons import Reason
from vgpu.core.views import NodeView

PROBES = (make_request(want(1, 1)), make_request(want(1, 1, 1)))
Holding = tuple[str, tuple[AssignedContainer, ...]]


def check_all(world: World) -> None:
    """Every invariant, on every node."""
    for check in CHECKS:
        check(world)
    world.decided.clear()


def decisions_fit(world: World) -> None:
    """I1, I2: a card that we just gave out carries all that is on it; nobody else is where one is alone."""
    for placement in world.decided:
        listed = _use(world, placement.node)[0]
        facts = {card.uuid: card for card in world.told.inventories[placement.node].cards}
        for card in (card for container in placement.containers for card in container.cards):
            use = listed[card.uuid]
            assert not use.shared_though_alone, f"I2: {card.uuid} is shared with a pod that must be alone"
            assert not use.over(facts[card.uuid]), f"I1: {card.uuid} was given out over its capacity: {use}"


def truth_fits(world: World) -> None:
    """I1, I2 as the API server sees it: as long as all assignments are ours, no card is ever over."""
    if world.outside:
        return
    for name, inventory in world.truth.inventories.items():
        holders = [(p.uid, p.assignment.containers) for p in world.truth.pods.values()
                   if p.node == name and may_hold(p) and p.assignment]  # fmt: skip
        listed = count_cards(inventory, holders)[0]
        for card in inventory.cards:
            assert not listed[card.uuid].over(card), f"I1: {card.uuid} carries {listed[card.uuid]}"


def overbooked_is_shown(world: World) -> None:
    """I1: a card that outside facts have filled is shown Overbooked and takes nothing."""
    for view in _views(world):
        listed = _use(world, view.name)[0]
        for card in view.cards:
            over = listed[card.fact.uuid].over(card.fact)
            assert card.overbooked == over, f"I1: {card.fact.uuid} overbooked={card.overbooked}"
        taken = {uuid for placement in _probe(view) for uuid in _uuids(placement)}
        assert not any(card.overbooked for card in view.cards if card.fact.uuid in taken), "I1: takes nothing"


def pods_count_once(world: World) -> None:
    """I3: what a pod holds is on its cards exactly once, and exactly as long as it may have a process."""
    for view in _views(world):
        listed, orphans = _use(world, view.name)
        assert [card.fact.uuid for card in view.cards] == list(listed), "I5: an inventory replaces the old cards"
        shown = {card.fact.uuid: [_amounts(holder) for holder in card.holders] for card in view.cards}
        assert shown == {uuid: _want(use) for uuid, use in listed.items()}, "I3: holders of listed cards"
        for card in view.cards:
            use = listed[card.fact.uuid]
            assert (card.used_slots, card.used_cores) == (use.slots, use.cores), "I3: sums"
        gone: dict[str, list[tuple[str, int, int, bool]]] = {}
        for orphan in view.orphans:
            gone.setdefault(orphan.uuid, []).append(_amounts(orphan.holder))
        assert gone == {uuid: _want(use) for uuid, use in orphans.items()}, "I4: orphans are shown"


def bookings_end(world: World) -> None:
    """I3: no booking outlives the event that shows its pod bound, or the pod."""
    for booking in world.ledger.bookings():
        pod = world.told.pods.get(booking.uid)
        assert pod is not None, "I3: a booking outlives its pod"
        if booking.uid in world.late:
            assert pod.assignment is None, "I3: a booking outlives the event that shows its assignment"
        else:
            assert not pod.node, "I3: a booking outlives the event that shows its pod bound"
        assert not pod.ended, "I3: a booking outlives its pod's end"


def assignments_are_sound(world: World) -> None:
    """I4: a container's cards are distinct, on the node, and in its inventory when we give them."""
    for placement in world.decided:
        known = {card.uuid for card in world.told.inventories[placement.node].cards}
        for container in placement.containers:
            uuids = [card.uuid for card in container.cards]
            assert len(set(uuids)) == len(uuids), f"I4: {uuids} are not distinct"
            assert set(uuids) <= known, f"I4: {uuids} are not on {placement.node}"


def events_equal_list(world: World) -> None:
    """I5: views kept from events equal those of a ledger built from a list; bookings and nominations apart."""
    fresh = fresh_ledger(world.told)
    for booking in world.ledger.bookings():
        fresh.book(booking)
    for pod in list(world.ledger.pending()):
        held = world.ledger.nomination(pod.uid)
        if held is not None:
            fresh.nominate(pod.uid, held.node, held)
    for name in NODES:
        kept = world.ledger.view(name)
        if kept is not None and kept.closed and kept.closed.reason is Reason.ADMISSION_REFUSED:
            kept = replace(kept, closed=None)  # the row of refusals lies outside I5
        assert kept == fresh.view(name), f"I5: node {name}"
    pending = {pod.uid: pod for pod in world.ledger.pending()}
    assert pending == {pod.uid: pod for pod in fresh.pending()}, "I5: pending pods"


def reservations_keep(world: World) -> None:
    """preemption.md 4.6 T2: when the leaving pods are gone, every owner of a reservation finds its room."""
    if world.outside:
        return
    for view in _views(world):
        for card in view.cards:
            held = [r for r in view.reservations if r.uuid == card.fact.uuid]
            if not held:
                continue
            staying = [holder for holder in card.holders if not holder.leaving]
            parts = [*staying, *held]
            assert sum(part.slots for part in parts) <= card.fact.slots, "T2: slots"
            assert sum(part.memory_mib for part in parts) <= card.fact.memory_mib, "T2: memory"
            assert sum(part.cores for part in parts) <= 100, "T2: cores"
            assert len(parts) == 1 or not any(part.exclusive for part in parts), "T2: alone"


def closed_takes_nothing(world: World) -> None:
    """I13, I14: no Node, no inventory, unreadable, readError, agent down, unhealthy: nothing new."""
    for view in _views(world):
        node, inventory = world.told.nodes.get(view.name), world.told.inventories.get(view.name)
        agents = [p.agent_pod_ready for p in world.told.pods.values()
                  if p.node == view.name and p.agent_pod_ready is not None]  # fmt: skip
        for placement in _probe(view):
            assert node is not None, "I13: the node is gone"
            assert inventory is not None, "I13: there is no inventory"
            assert not inventory.read_error, "I13: readError"
            assert not inventory.isolation_error, "I13: isolationError"
            assert not inventory.problem, "I14: the inventory cannot be read"
            assert any(count > 0 for _, count in node.slots_allocatable), "I13: kubelet offers nothing"
            assert not agents or any(agents), "I13: the agent is down"
            facts = {card.uuid: card for card in inventory.cards}
            chosen = [facts[uuid] for uuid in _uuids(placement)]
            assert all(card.healthy and card.mode is CardMode.SHARED for card in chosen), "I13: card health"


CHECKS: tuple[Callable[[World], None], ...] = (
    assignments_are_sound,
    decisions_fit,
    truth_fits,
    pods_count_once,
    overbooked_is_shown,
    bookings_end,
    events_equal_list,
    reservations_keep,
    closed_takes_nothing,
)


def _views(world: World) -> Iterator[NodeView]:
    views = (world.ledger.view(name) for name in NODES)
    return (view for view in views if view is not None)


def _use(world: World, node: str) -> tuple[dict[str, CardUse], dict[str, CardUse]]:
    """What the ledger was told, and what it booked, counted naively."""
    booked = {b.uid: b for b in world.ledger.bookings()}
    holders: list[Holding] = [(uid, b.placement.containers) for uid, b in booked.items() if b.node == node]
    for pod in world.told.pods.values():
        if pod.node == node and may_hold(pod) and pod.uid not in booked:
            assert pod.assignment is not None
            holders.append((pod.uid, pod.assignment.containers))
    return count_cards(world.told.inventories.get(node), sorted(holders))


def _probe(view: NodeView) -> list[Placement]:
    """The smallest requests there are, on this node."""
    answers = [place(view, request, "probe", POLICIES) for request in PROBES]
    return [answer for answer in answers if isinstance(answer, Placement)]


def _uuids(placement: Placement) -> list[str]:
    return [card.uuid for container in placement.containers for card in container.cards]


def _amounts(holder: object) -> tuple[str, int, int, bool]:
    return (holder.uid, holder.slots, holder.cores, holder.exclusive)  # type: ignore[attr-defined]  # a Holder


def _want(use: CardUse) -> list[tuple[str, int, int, bool]]:
    return [(uid, part.slots, part.cores, part.alone) for uid, part in sorted(use.pods.items())]
