"""All that preemption knows of the cluster beside the ledger: workloads, queues, gangs, budgets, what nodes carry.

Enters: facts (put_/drop_) as the watches bring them, each after the ledger has it; what only our own process knows
(accepted evictions, who cannot start). Leaves: workloads, the queues' standing, the world that a decision looks
at. Equal to one built from nothing. Mutable, with one owner; no clock, no I/O. A change only marks pods; they are
worked out when somebody asks, so a burst of events costs each pod once.
"""

from collections.abc import Collection, Mapping

from vgpu.core.facts import PodFact, Scheduling
from vgpu.core.ledger import Ledger
from vgpu.core.placement import Policies
from vgpu.core.preempt.budget_book import BudgetBook, BudgetFact
from vgpu.core.preempt.card_kinds import CardKinds
from vgpu.core.preempt.decision_world import DecisionWorld
from vgpu.core.preempt.eligible import Standing
from vgpu.core.preempt.facts import Amounts, Gang, QueueFact, Workload
from vgpu.core.preempt.feasible import NodeUse
from vgpu.core.preempt.gang_book import GangBook
from vgpu.core.preempt.homes import Homes
from vgpu.core.preempt.node_uses import NodeUses
from vgpu.core.preempt.pod_indexes import BookingChanges, PodIndexes
from vgpu.core.preempt.pod_marks import PodMarks
from vgpu.core.preempt.queue_book import QueueBook
from vgpu.core.preempt.queue_names import QueueNames
from vgpu.core.preempt.rank import Rank
from vgpu.core.preempt.reservations import PlanHold
from vgpu.core.preempt.snapshots import Snapshots
from vgpu.core.preempt.swaps import Swap
from vgpu.core.preempt.usage import QueueUsage
from vgpu.core.preempt.victims import DisruptionFact
from vgpu.core.preempt.workload_of import Around, is_workload, workload_of
from vgpu.core.request import PodRequest
from vgpu.core.terms import GroupFact, PodTerms

_POLICIES = Policies()


class Roster:
    """See the module. `scheduler_name` "" = pods of every scheduler are ours."""

    def __init__(self, ledger: Ledger, scheduler_name: str = "") -> None:
        self._ledger = ledger
        self._scheduler_name = scheduler_name
        self._book = QueueBook()
        self._dirty: set[str] = set()
        self._gangs = self.gangs = GangBook(self._dirty.update)
        self._budgets = BudgetBook()
        self._uses = NodeUses()
        self._cards = CardKinds()
        self._homes = Homes(ledger, self._cards)
        self._names = QueueNames()
        self._marks = PodMarks()
        self._snapshots = Snapshots(ledger, self._uses)
        self._queues: dict[str, QueueFact] = {}
        self._workloads: dict[str, Workload] = {}
        self._scheduling: dict[str, Scheduling] = {}
        self._indexes = PodIndexes()
        self._bookings = BookingChanges(ledger)
        self._dirty_nodes: set[str] = set()
        self._revision, self._settled = 0, -1

    def put_pod(self, fact: PodFact) -> None:
        """A pod is there, like this, with or without GPUs."""
        self._uses.put(fact)
        self._dirty.update(self._gangs.put_other(fact))
        if fact.uid in self._workloads or is_workload(fact):
            self._dirty.add(fact.uid)

    def drop_pod(self, uid: str) -> None:
        """A pod is gone."""
        self._uses.drop(uid)
        self._dirty.update(self._gangs.drop_other(uid))
        self._marks.drop(uid)
        if uid in self._workloads:
            self._dirty.add(uid)

    def put_queue(self, queue: QueueFact) -> None:
        """A queue is there, like this."""
        before = self._queues.get(queue.name)
        self._queues[queue.name] = queue
        self._book.put_queue(queue)
        if before is None or before.stop_policy is not queue.stop_policy:
            self._dirty.update(self._indexes.in_queue.of(queue.name))

    def drop_queue(self, name: str) -> None:
        """A queue is gone: nothing of it can start."""
        if self._queues.pop(name, None) is not None:
            self._book.drop_queue(name)
            self._dirty.update(self._indexes.in_queue.of(name))

    def put_namespace(self, name: str, queue: str) -> bool:
        """A namespace names this queue for its pods, "" = none. False when that is nothing new."""
        if not self._names.put_namespace(name, queue):
            return False
        self._dirty.update(self._indexes.in_namespace.of(name))
        return True

    def drop_namespace(self, name: str) -> None:
        """A namespace is gone."""
        self.put_namespace(name, "")

    def namespaces_known(self) -> None:
        """Every namespace has been seen: from now on a pod keeps the queue that it was bound in."""
        if self._names.complete():
            self._dirty.update(self._workloads)

    def put_group(self, fact: GroupFact) -> None:
        """A PodGroup is there, like this."""
        self._dirty.update(self._gangs.put_group(fact))

    def drop_group(self, key: str) -> None:
        """A PodGroup is gone."""
        self._dirty.update(self._gangs.drop_group(key))

    def put_class(self, name: str, priority: int | None) -> None:
        """A PriorityClass has this value, None = it is gone; PodGroups name classes."""
        self._dirty.update(self._gangs.put_class(name, priority))

    def put_budget(self, fact: BudgetFact) -> bool:
        """A PodDisruptionBudget is there, like this. False when that is nothing new."""
        return self._budgets.put_budget(fact)

    def drop_budget(self, key: str) -> None:
        """A PodDisruptionBudget (NS/NAME) is gone."""
        self._budgets.drop_budget(key)

    def cards_changed(self, node: str) -> None:
        """The node's inventory is another than before."""
        self._dirty_nodes.add(node)

    def mark_evicted(self, uid: str) -> None:
        """The pod's eviction was accepted: it counts as being deleted from now on."""
        if self._ledger.pod(uid) is not None:
            self._marks.evicted.add(uid)
            self._dirty.add(uid)

    def set_inactive(self, uid: str, why: str) -> None:
        """The waiting pod could not be scheduled now whatever were free; "" ends that."""
        self._marks.set_inactive(uid, why)
        self._dirty.add(uid)

    def set_evictions(self, uid: str, count: int) -> None:
        """So often this pod, or the pods of this owner, were evicted for others; 0 forgets it. Who runs stays."""
        self._marks.set_evictions(uid, count)
        self._dirty |= {uid, *(one for one in self._indexes.of_owner.of(uid) if not self._workloads[one].running)}

    def promise(self, uids: Collection[str], to_come: Mapping[str, Amounts] | None = None) -> None:
        """Cards are held for these waiting pods, and for so much `to_come` by queue, and for nobody else."""
        self._settle()
        self._book.promise(uids, to_come)

    @property
    def workloads(self) -> Mapping[str, Workload]:
        """All GPU pods that are not over, by uid; live: copy what is to last."""
        self._settle()
        return self._workloads

    @property
    def queues(self) -> Mapping[str, QueueFact]:
        """All queues by name; live."""
        return self._queues

    @property
    def scheduling(self) -> Mapping[str, Scheduling]:
        """What each GPU pod asks for beyond cards, by uid; live."""
        self._settle()
        return self._scheduling

    @property
    def uses(self) -> Mapping[str, NodeUse]:
        """What all pods of a node ask for beyond cards, by node; live."""
        return self._uses.all()

    @property
    def revision(self) -> int:
        """Raised by every change of a workload."""
        self._settle()
        return self._revision

    def queue_of(self, pod: PodFact) -> str:
        """The queue of the pod: the one it was bound in, else the one it names, its namespace's or the default."""
        return self._names.of(pod)

    def usage(self, queue: str, without_promise: str = "") -> QueueUsage:
        """What the queue uses and is promised now, but for this uid; who of it is entitled may follow later."""
        self._settle()
        return self._book.usage(queue, without_promise)

    def claim(self, request: PodRequest) -> Amounts | None:
        """What the request is charged on the smallest card that can take it; None: no card can."""
        self._settle()
        return self._cards.claim(request)

    def standing(self) -> Standing:
        """How the queues stand."""
        self._settle()
        return self._book.standing()

    def gang_of(self, uid: str) -> Gang | None:
        """The gang of this pod."""
        self._settle()
        return self._gangs.terms(uid).gang

    def members(self, gang_key: str) -> tuple[str, ...]:
        """Uids of the gang's pods, in the order of uids."""
        self._settle()
        return tuple(sorted(self._gangs.members(gang_key)))

    def group(self, gang_key: str) -> GroupFact | None:
        """The gang's PodGroup, if there is one."""
        return self._gangs.fact(gang_key)

    def disruptions(self, accepted: Collection[str] = frozenset()) -> tuple[DisruptionFact, ...]:
        """Every PodDisruptionBudget that covers a GPU pod. `accepted`: uids whose eviction was accepted; what a
        budget's status does not show of them yet is taken off."""
        self._settle()
        unseen = [uid for uid in accepted if (pod := self._ledger.pod(uid)) is not None and not pod.terminating]
        return tuple(self._budgets.facts(unseen))

    def world(
        self,
        plans: tuple[tuple[PlanHold, Rank], ...] = (),
        swaps: tuple[Swap, ...] = (),
        policies: Policies = _POLICIES,
        accepted: Collection[str] = frozenset(),
    ) -> DecisionWorld:
        """Everything as it stands, in values that do not change any more."""
        standing = self.standing()
        workloads, scheduling = self._snapshots.pods(self._revision, self._workloads, self._scheduling)
        return DecisionWorld(
            views=self._snapshots.views(),
            workloads=workloads,
            standing=standing,
            plans=plans,
            uses=self._snapshots.uses(),
            scheduling=scheduling,
            disruptions=self.disruptions(accepted),
            swaps=swaps,
            policies=policies,
        )

    def _settle(self) -> None:
        """Work out everything that was marked. Asked for at every turn, and mostly nothing was."""
        if self._settled == self._ledger.version and not self._dirty and not self._dirty_nodes:
            return
        self._settled, self._dirty = self._ledger.version, self._dirty | self._bookings.take()
        while self._dirty_nodes:
            everyone = self._workloads if self._homes.cards_changed(node := self._dirty_nodes.pop()) else ()
            self._dirty.update(everyone, self._indexes.on_node.of(node))
        self._dirty |= self._homes.take_moved()
        while self._dirty:
            self._work_out(self._dirty.pop())

    def _work_out(self, uid: str) -> None:
        pod = self._ledger.pod(uid)
        if pod is None or not is_workload(pod):
            self._remove(uid)
            return
        terms = pod.terms or PodTerms()
        changed = self._gangs.put_member(uid, terms.group, terms.group_minimum)
        self._dirty.update(other for other in changed if other != uid)
        workload = workload_of(pod, self._around(pod, terms))
        self._indexes.put(workload)
        self._budgets.put_pod(uid, pod.namespace, pod.name, terms.labels)
        if self._workloads.get(uid) != workload or self._scheduling.get(uid) != pod.scheduling:
            self._workloads[uid] = workload
            self._scheduling[uid] = pod.scheduling
            self._book.put(workload)
            self._revision += 1

    def _around(self, pod: PodFact, terms: PodTerms) -> Around:
        booking = self._ledger.booking(pod.uid)
        queue = self._names.settle(pod)
        return Around(
            queue=queue,
            queue_fact=self._queues.get(queue),
            claim=None if pod.request is None else self._cards.claim(pod.request),
            cards=self._cards.cards_of(pod.node or (booking.node if booking is not None else "")),
            booking=booking,
            group=self._gangs.terms(pod.uid),
            inactive=self._marks.inactive.get(pod.uid, "") or self._cards.too_large(pod.request),
            nowhere=self._homes.why_nowhere(pod, waits=not pod.node and booking is None),
            evicted=pod.uid in self._marks.evicted,
            evictions=self._marks.evictions_of(pod.uid, terms.owner.uid),
            ours=self._scheduler_name in ("", pod.scheduler_name),
        )

    def _remove(self, uid: str) -> None:
        self._dirty.update(self._gangs.drop_member(uid))
        self._dirty.discard(uid)
        self._budgets.drop_pod(uid)
        self._indexes.drop(uid)
        self._homes.drop(uid)
        self._names.drop(uid)
        if self._workloads.pop(uid, None) is not None:
            self._scheduling.pop(uid, None)
            self._book.drop(uid)
            self._revision += 1
