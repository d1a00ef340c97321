"""What people are told about preemption: who goes and why, what is lost, who was spared and what would help.

Values enter, text leaves: one place, so that an event, a plan and a what-if say the same of the same thing. May
not live here: who goes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vgpu.core.preempt.cost import Cost
from vgpu.core.preempt.facts import Workload
from vgpu.core.preempt.limits import cards_words
from vgpu.core.preempt.protection import Right
from vgpu.core.preempt.victims import lost_work
from vgpu.core.reasons import Reason
from vgpu.core.wanted import plural_s

NAMED = 3
"""So many pods are named in one sentence; the others are counted."""

HELPS: Mapping[Reason, str] = {
    Reason.NO_LOWER_RANK: "give it a higher PriorityClass, or let its queue deserve more",
    Reason.VICTIM_ENTITLED: "wait: work within what its queue deserves is never taken",
    Reason.QUEUE_CAPABILITY: "ask for less, raise the capability of its queue, or wait for its other work to end",
    Reason.QUEUE_GUARANTEE: "lower the guarantee of the other queue, or wait",
    Reason.EVICTION_LIMITS: "wait, or let disruption budgets, gangs or guarantees allow more",
    Reason.GANG_INCOMPLETE: "create the pods that are missing, or look at what holds them back",
    Reason.POD_GROUP_NOT_FOUND: "create the PodGroup, or make the pod anew without its name",
    Reason.GANG_SURPLUS: "wait: a further member uses what is free",
    Reason.NO_ROOM_FOR_GANG: "ask for fewer or smaller members, or wait until more may be evicted",
    Reason.QUEUE_NOT_RECLAIMABLE: "set reclaimable: true in the other queue, or wait",
    Reason.QUEUE_POLICY: "let its queue deserve more, or change its preemption; a gang must name one queue",
    Reason.QUEUE_STOPPED: "set stopPolicy: None in its queue",
    Reason.QUEUE_NOT_FOUND: "create the queue, or let the pod name another",
    Reason.PRIORITY_THRESHOLD: "raise maxPriorityThreshold of its queue",
    Reason.PREEMPTION_NEVER: "wait for room, or use a PriorityClass without preemptionPolicy Never",
    Reason.NEVER_A_VICTIM: "such pods are never evicted: wait for them to end",
    Reason.PROTECTED: "wait until they have run for their minRuntime or cooldown",
    Reason.WAIT_BEFORE: "wait: its queue evicts only after waitBefore",
    Reason.NOT_ACTIVE: "look at its scheduling gates and at what it asks for: kubectl vgpu explain",
    Reason.SWAP_FROZEN: "find out who else places pods there: these two have evicted each other in turn",
    Reason.PLAN_NOT_WRITTEN: "let its namespace hold GpuPreemptions: look at ResourceQuotas and webhooks",
    Reason.HELD_FOR_ANOTHER: "wait: what is free is held for a plan of equal or higher rank",
    Reason.OTHER_FILTERS: "look at its node selector, affinity, tolerations, CPU and memory",
    Reason.INSUFFICIENT_MEMORY: "ask for less memory of each card, or for cards that have more",
    Reason.MORE_CARDS_THAN_NODE: "ask for fewer cards in one container",
    Reason.CARD_SELECTION: "allow more cards: its annotations choose which ones it may use",
    Reason.NO_INVENTORY: "start agents on the GPU nodes: kubectl get gpunodeinventory",
}
"""What a person can do about a reason. Reasons that say it themselves are not here."""


def duration_words(seconds: int) -> str:
    """Seconds in the two largest units: "45 s", "2 min 5 s", "3 h", "2 d 4 h"."""
    left = max(0, seconds)
    parts: list[tuple[int, str]] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts:
            parts.append((count, unit))
    return " ".join(f"{count} {unit}" for count, unit in parts[:2] if count) or "0 s"


def names_words(pods: Sequence[str]) -> str:
    """Some names and how many more: "a, b, c and 2 more"."""
    named, more = ", ".join(pods[:NAMED]), len(pods) - NAMED
    return f"{named} and {more} more" if more > 0 else named


def gpu_time_words(work: int) -> str:
    """Thousandths of cards x seconds, as time of one whole card: "12 GPU min"."""
    seconds = work // 1000
    return f"{duration_words(seconds)} of a GPU" if seconds else "nothing"


def who_words(pod: Workload) -> str:
    """NS/POD with what its rank rests on: "team/h (queue high, priority 100)"."""
    return f"{pod.pod} (queue {pod.queue}, priority {pod.priority})"


def why_it_goes(right: Right, preemptor: Workload, victim: Workload) -> str:
    """The one rule, as it applies to these two."""
    if right is Right.PREEMPT and preemptor.priority == victim.priority:
        return f"both are of queue {victim.queue} and of priority {victim.priority}, and it came later"
    lower = f"its priority {victim.priority} is below {preemptor.priority}"
    if right is Right.PREEMPT:
        return f"both are of queue {victim.queue}, and {lower}"
    beyond = f"queue {victim.queue} runs it beyond what it deserves"
    if right is Right.BORROW:
        return f"{beyond}, and {lower}"
    return f"{beyond}, and queue {preemptor.queue} takes back what it deserves"


def lost_words(victim: Workload, now_seconds: int) -> str:
    """What its eviction throws away: the time on its cards since its last checkpoint, or its start."""
    work = lost_work(victim, now_seconds)
    if not work:
        return "it loses nothing"
    since = "its last checkpoint" if _has_checkpoint(victim) else "its start"
    return f"it loses {gpu_time_words(work)} ({count_cards(victim.amounts.cards_thousandths)} since {since})"


def count_cards(thousandths: int) -> str:
    """A number of cards in words: "1 card", "0.25 cards"."""
    cards = cards_words(thousandths)
    return f"{cards} card" if cards == "1" else f"{cards} cards"


@dataclass(frozen=True, slots=True)
class Held:
    """What a plan is told of by. `plan` is NS/NAME of its object; `cards`: UUIDs on `node`; `gang`: whose members
    it is for, "" = for one pod."""

    plan: str
    cards: Sequence[str] = ()
    node: str = ""
    gang: str = ""

    @property
    def where(self) -> str:
        """The cards and their node; "" where none is known."""
        return f"{names_words(self.cards)} on {self.node}" if self.cards else ""


def victim_message(right: Right, preemptor: Workload, victim: Workload, held: Held, now_seconds: int) -> str:
    """For the victim's event; `held` has the victim's cards, and the gang of the preemptor."""
    why, lost = why_it_goes(right, preemptor, victim), lost_words(victim, now_seconds)
    who = f"gang {held.gang} (queue {preemptor.queue}, priority {preemptor.priority})" if held.gang else ""
    gives = f"; it gives free {held.where}" if held.where else ""
    return f"evicted for {who or who_words(preemptor)} by {right.value}: {why}{gives}; {lost}; plan {held.plan}"


def preemptor_message(rule: str, victims: Sequence[str], held: Held, *, exact: bool) -> str:
    """For the preemptor's event: whom it waits for, by which right, what is held. `victims` are NS/PODs."""
    cards = held.where or "cards"
    if not victims:
        return f"{cards} {_are(held)} held for it until those are gone who leave already; plan {held.plan}"
    least = "" if exact else "; the search was cut short, so there may be a smaller set"
    count, who = len(victims), f"gang {held.gang} " if held.gang else ""
    return (
        f"{who}evicts {count} pod{plural_s(count)} ({names_words(victims)}) by {rule}; "
        f"{cards} {_are(held)} held for this pod{least}; plan {held.plan}"
    )


def _are(held: Held) -> str:
    return "is" if len(held.cards) == 1 else "are"


def waits_message(pods: Sequence[str]) -> str:
    """Whom a plan still waits for."""
    return f"waits for {names_words(pods)} to end" if pods else ""


def cost_words(cost: Cost, classes: Sequence[int], workloads: int, gangs: Sequence[str] = ()) -> str:
    """What a set of victims costs, in the order in which it is compared. `classes` as in the cost's scale;
    `workloads`: of so many controllers the pods are; `gangs`: that stop as a whole."""
    of_class = [f"{count} of priority {priority}" for priority, count in _by_class(cost, classes)]
    parts = (
        [f"{cost.violations} disruption budget violation{plural_s(cost.violations)}"] if cost.violations else []
    )
    by_class = f" ({', '.join(of_class)})" if of_class else ""
    parts.append(f"{cost.pods} pod{plural_s(cost.pods)}{by_class} of {workloads} workload{plural_s(workloads)}")
    if gangs:
        parts.append(f"gang{plural_s(len(gangs))} {names_words(gangs)} stopped as a whole")
    parts.append(f"{gpu_time_words(cost.lost_work)} lost")
    parts.append(f"{count_cards(cost.freed)} freed")
    return ", ".join(parts)


def help_words(reason: Reason) -> str:
    """What would change a "no", or "" where its message says it."""
    return HELPS.get(reason, "")


def _by_class(cost: Cost, classes: Sequence[int]) -> list[tuple[int, int]]:
    return [(priority, count) for priority, count in zip(classes, cost.pods_by_class, strict=True) if count]


def _has_checkpoint(victim: Workload) -> bool:
    at = victim.checkpoint_seconds
    return at is not None and (victim.started_seconds is None or at >= victim.started_seconds)
