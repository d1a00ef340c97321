"""One GPU pod as preemption sees it, worked out from its fact and what is known around it.

Enters: a PodFact, its booking, its queue, its gang, which cards there are. Leaves: a Workload, or None for a pod
that is nobody's business any more. Pure; remembering belongs to the roster.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from vgpu import names
from vgpu.core.booking import Booking
from vgpu.core.charge import card_charges
from vgpu.core.facts import AssignedContainer, AssignmentSource, CardFact, PodFact
from vgpu.core.preempt.amounts import held_amounts
from vgpu.core.preempt.facts import NOTHING, Amounts, QueueFact, StopPolicy, Workload
from vgpu.core.preempt.gang_book import ALONE, GroupTerms
from vgpu.core.preempt.pod_groups import PodGroupIs, refusal_without
from vgpu.core.terms import PodTerms
from vgpu.core.wanted import plural_s

_UNSAID = PodTerms()


@dataclass(frozen=True, slots=True)
class Around:
    """What a pod's workload depends on beside the pod. `cards`: of the node that it is on, by name; `claim` None:
    no card of the cluster can take it. `queue_fact` None: there is no such queue. `inactive`: why it could not be
    scheduled now, as others found out, and what to do, or "". `nowhere`: why no node would take it whoever left,
    or "". `evicted`: its eviction was accepted. `ours`: it is our scheduler's.
    """

    queue: str
    queue_fact: QueueFact | None
    claim: Amounts | None
    cards: Mapping[str, CardFact]
    booking: Booking | None = None
    group: GroupTerms = ALONE
    inactive: str = ""
    nowhere: str = ""
    evicted: bool = False
    evictions: int = 0
    ours: bool = True


def is_workload(pod: PodFact | None) -> bool:
    """True for a pod that holds or wants cards and is not over."""
    return pod is not None and (pod.wants_gpus or pod.assignment is not None) and not pod.ended


def workload_of(pod: PodFact, around: Around) -> Workload:
    """The workload of a pod that is one."""
    terms = pod.terms or _UNSAID
    running = bool(pod.node) or around.booking is not None
    held = _held(pod, around)
    claim = around.claim if around.claim is not None else held or NOTHING
    group = around.group
    why = _why_not(pod, terms, around)
    return Workload(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        queue=around.queue,
        priority=pod.priority if group.priority is None else group.priority,
        amounts=claim if held is None else held,
        claim=claim,
        created_seconds=terms.created_seconds,
        request=pod.request,
        owner=terms.owner,
        gang=group.gang,
        node=pod.node or (around.booking.node if around.booking is not None else None),
        running=running,
        terminating=pod.terminating or around.evicted,
        active=running or not why,
        inactive_why="" if running else why,
        nowhere_why="" if running else around.nowhere,
        preempt_never=terms.preempt_never,
        started_seconds=terms.started_seconds,
        checkpoint_seconds=terms.checkpoint_seconds,
        evictions=0 if running else around.evictions,
        preemptable=terms.preemptable,
        cooldown_seconds=terms.cooldown_seconds,
        evict_opt_in=terms.evict_opt_in,
        daemonset_or_mirror=pod.daemonset_or_mirror,
        legacy=running and not _assigned_by_us(pod, around),
    )


def _held(pod: PodFact, around: Around) -> Amounts | None:
    """Of the cards that it holds; None where nobody can tell them."""
    containers: tuple[AssignedContainer, ...] = ()
    if pod.assignment is not None:
        containers = pod.assignment.containers
    elif around.booking is not None:
        containers = around.booking.placement.containers
    return held_amounts(card_charges(containers), around.cards) if containers else None


def _assigned_by_us(pod: PodFact, around: Around) -> bool:
    if pod.assignment is not None:
        return pod.assignment.source is AssignmentSource.VGPU
    return around.booking is not None


def _why_not(pod: PodFact, terms: PodTerms, around: Around) -> str:
    """What waits is active while nothing but room (and its own gang) keeps it from starting: "". Else what does,
    and what to do."""
    if pod.request is None:
        return pod.refusal.message if pod.refusal else "what it asks for cannot be read; correct its limits"
    if pod.terminating:
        return "it is being deleted"
    if not around.ours:
        return f"it names the scheduler {pod.scheduler_name}, and not this operator's; name that in schedulerName"
    return around.inactive or _queue_stops(around) or _gates_hold(pod, terms) or _group_lacks(terms, around)


def _queue_stops(around: Around) -> str:
    if around.claim is None:
        return "no card can take it; ask for less of each card"
    if around.queue_fact is None:
        return f"there is no GpuQueue {around.queue}; create it, or let the pod name another"
    policy = around.queue_fact.stop_policy
    return "" if policy is StopPolicy.NONE else f"queue {around.queue} is on {policy}; set its stopPolicy to None"


def _group_lacks(terms: PodTerms, around: Around) -> str:
    gang = around.group.gang
    if terms.group is None or gang is None or gang.pod_group is not PodGroupIs.MISSING:
        return ""
    refusal = refusal_without(terms.group, gang.pod_group)
    return refusal.message if refusal is not None else ""


def _gates_hold(pod: PodFact, terms: PodTerms) -> str:
    foreign = sorted(terms.gates - {names.GANG_GATE})
    if not foreign and (not pod.gated or terms.gates):
        return ""
    named = f"gate{plural_s(len(foreign))} {', '.join(foreign)}" if foreign else "gate"
    return f"its scheduling {named} must be taken off first, by whoever set {'them' if foreign[1:] else 'it'}"
