"""Why a GPU pod waits: one sentence for its event, and the full answer per node and card for /explain.

Enters: a PodFact, the verdicts of all nodes, node views. Leaves: Explanation, a value. May not live here:
fit rules (they are asked, never repeated), HTTP, JSON, clocks.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest

from vgpu.core.facts import PodFact
from vgpu.core.fit import EMPTY, bases_of, blocked, unselected
from vgpu.core.nearness import Nearness, nearness, whole_holder
from vgpu.core.reasons import Reason, Refusal
from vgpu.core.views import CardView, NodeView
from vgpu.core.wanted import held_words, plural_s, wanted_words

EVENT_BYTES = 1024
"""The longest message that goes into an event."""
SHOWN_NODES = 3
"""Fitting nodes that a message names."""


@dataclass(frozen=True, slots=True)
class CardAnswer:
    """One card as the pod sees it; `why` is empty when the card would take each container of the pod alone."""

    uuid: str
    index: int
    free_slots: int
    free_memory_mib: int
    free_cores: int
    why: str
    held_whole_by: str = ""
    """NS/POD of the pod that is alone on it."""
    leaving: tuple[str, ...] = ()
    """NS/POD of those on it who are being deleted."""
    held_for: tuple[str, ...] = ()
    """For whom it is held, by what and until when, in words."""


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """One node as the pod sees it; `refusal` None: the pod's cards fit there."""

    node: str
    refusal: Refusal | None
    cards: tuple[CardAnswer, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The pod's current reason (None: nothing stands in its way that we know of) and a readable message."""

    reason: Reason | None
    message: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The full answer: what was wanted, the verdict, counts per reason, every node and card."""

    pod: str
    uid: str
    wanted: str
    verdict: Verdict
    counts: tuple[tuple[Reason, int], ...]
    fitting: tuple[str, ...]
    nodes: tuple[NodeAnswer, ...]
    notes: tuple[str, ...] = ()
    """What else keeps this operator from placing the pod, or has made it superfluous."""


@dataclass(frozen=True, slots=True)
class Around:
    """What a pod is told of nodes. `closest`: the words of closest_words; `here`: nodes with cards that are held
    for the pod itself; `words`: for whom else, by what and until when, by uid."""

    closest: str = ""
    here: frozenset[str] = frozenset()
    words: Mapping[str, str] = field(default_factory=dict)


NOTHING_AROUND = Around()


@dataclass(frozen=True, slots=True)
class Tally:
    """What all nodes together answer to one request: shared by every pod with that request."""

    fitting: int
    first_fitting: tuple[str, ...]
    counts: tuple[tuple[Reason, int], ...]
    """Nodes per reason, the reason that stands nearest to a placement first."""


def tally(fitting: Collection[str], refused: Mapping[str, Refusal], never: Collection[str] = frozenset()) -> Tally:
    """Count the verdicts of all nodes. The reason of the nearest node comes first, then the more frequent one;
    `never` are closed nodes that could not take the pod open either."""
    counts: Counter[Reason] = Counter()
    nearest: dict[Reason, Nearness] = {}
    for name, refusal in refused.items():
        reason = refusal.reason
        counts[reason] += 1
        if nearest.get(reason, Nearness.UNMEANT) is Nearness.UNMEANT:
            nearest[reason] = Nearness.UNMEANT if name in never else nearness(reason)
    ordered = sorted(counts.items(), key=lambda item: (nearest[item[0]], -item[1], item[0].value))
    return Tally(len(fitting), tuple(nsmallest(SHOWN_NODES, fitting)), tuple(ordered))


def waiting_reason(pod: PodFact, answer: Tally | None, barred: Refusal | None = None) -> Reason | None:
    """Why `pod` is not placed; None: nothing that we know of stands in its way.

    `answer` is None when the pod has no readable request. `barred`: why its queue does not let it start. A pod
    whose cards fit somewhere and that kube-scheduler calls unschedulable is held by other filters only.
    """
    if pod.refusal is not None:
        return pod.refusal.reason
    if pod.request is None or answer is None:
        return None
    if barred is not None:
        return barred.reason
    if answer.fitting:
        return Reason.OTHER_FILTERS if pod.unschedulable else None
    return answer.counts[0][0] if answer.counts else Reason.NO_INVENTORY


def verdict(
    pod: PodFact,
    answer: Tally | None,
    closest: str = "",
    barred: Refusal | None = None,
    held_on: Collection[str] = (),
) -> Verdict:
    """The reason and its message, at most EVENT_BYTES; `closest` are the words of closest_words, `held_on` nodes
    with cards that are held for the pod: other nodes are no matter then."""
    reason = waiting_reason(pod, answer, barred)
    if pod.refusal is not None:
        return Verdict(reason, clip(pod.refusal.message))
    if pod.request is None or answer is None:
        return Verdict(None, "the pod asks for no GPU")
    wanted = f"wants {wanted_words(pod.request)}"
    if barred is not None:
        return Verdict(reason, clip(f"{wanted}; {barred.message}"))
    if held_on and not answer.fitting:
        nodes = ", ".join(nsmallest(SHOWN_NODES, held_on))
        return Verdict(None, clip(f"{wanted}; cards are held for it on {nodes} until they are free"))
    if answer.fitting:
        return Verdict(reason, clip(f"{wanted}; {_fitting_words(pod, answer)}"))
    return Verdict(reason, clip(f"{wanted}; {_refused_words(answer, closest)}"))


def _refused_words(answer: Tally, closest: str) -> str:
    if not answer.counts:
        return "no node of the cluster lists any GPU"
    said = ", ".join(f"{count} {counted.value}" for counted, count in answer.counts)
    nodes = sum(count for _, count in answer.counts)
    text = f"0 of {nodes} node{plural_s(nodes)} fit: {said}"
    return f"{text}; {closest}" if closest else text


def _fitting_words(pod: PodFact, answer: Tally) -> str:
    more = ", ..." if answer.fitting > SHOWN_NODES else ""
    named = ", ".join(answer.first_fitting) + more
    fits = f"the cards fit on {answer.fitting} node{plural_s(answer.fitting)} ({named})"
    if not pod.unschedulable:
        return fits
    return f"{fits}; kube-scheduler's other filters say: {pod.unschedulable_message or 'no reason given'}"


def explain(
    pod: PodFact,
    answer: Tally | None,
    nodes: Sequence[tuple[NodeView, Refusal | None]],
    notes: Sequence[str] = (),
    barred: Refusal | None = None,
    around: Around = NOTHING_AROUND,
) -> Explanation:
    """The full answer for `pod`; `nodes` pairs each view with its refusal (None: the pod's cards fit there).

    A pod that is bound or over is asked of no node, and one whose own request is refused fits nowhere: then
    there are no rows. `barred`: why its queue does not let it start.
    """
    request = pod.request
    settled = _settled(pod)
    asked = answer is not None and request is not None and settled is None
    answers = tuple(
        NodeAnswer(view.name, refusal, tuple(_card_answer(card, view, pod, around.words) for card in view.cards))
        for view, refusal in sorted(nodes if asked else (), key=lambda pair: pair[0].name)
    )
    return Explanation(
        pod=f"{pod.namespace}/{pod.name}",
        uid=pod.uid,
        wanted=wanted_words(request) if request else "",
        verdict=settled or verdict(pod, answer, around.closest, barred, around.here),
        counts=answer.counts if asked and answer else (),
        fitting=tuple(node.node for node in answers if node.refusal is None),
        nodes=answers,
        notes=tuple(notes),
    )


def _settled(pod: PodFact) -> Verdict | None:
    """What is said of a pod that waits for no cards; None for one that does."""
    if not pod.node:
        return Verdict(None, f"it is over ({pod.phase.value}) and was never bound") if pod.ended else None
    state = "being deleted" if pod.terminating else pod.phase.value
    if pod.ended:
        return Verdict(None, f"bound to {pod.node} and over ({pod.phase.value}): it holds no cards")
    if pod.assignment is not None:
        return Verdict(None, clip(f"bound to {pod.node} on cards {held_words(pod.assignment)}; {state}"))
    reason = Reason.ASSIGNMENT_IGNORED if pod.assignment_problem else Reason.BOUND_WITHOUT_ASSIGNMENT
    return Verdict(reason, f"bound to {pod.node} without a readable assignment of cards; {state}")


def notes_on(pod: PodFact, scheduler_name: str) -> list[str]:
    """What stands beside the verdict: where the pod is, who schedules it, what holds it back."""
    notes = []
    if pod.node:
        if pod.refusal is not None:
            notes.append(f"its request could not be placed: {pod.refusal.message}")
    elif pod.ended or pod.terminating:
        notes.append("it has ended or is being deleted")
    elif pod.scheduler_name != scheduler_name:
        notes.append(f"it names the scheduler {pod.scheduler_name}: {scheduler_name} does not place it")
    elif pod.gated:
        notes.append("a scheduling gate holds it back")
    if pod.assignment_problem:
        notes.append(f"its assignment is ignored: {pod.assignment_problem}")
    return [*notes, *(pod.terms.problems if pod.terms is not None else ())]


def _card_answer(card: CardView, view: NodeView, pod: PodFact, words: Mapping[str, str]) -> CardAnswer:
    fact = card.fact
    others = [r for r in view.reservations if r.uuid == fact.uuid and r.uid != pod.uid]
    return CardAnswer(
        fact.uuid,
        fact.index,
        card.free_slots,
        card.free_memory_mib,
        card.free_cores,
        _card_why(card, view, pod),
        whole_holder(card),
        tuple(f"{holder.namespace}/{holder.name}" for holder in card.holders if holder.leaving),
        tuple(words.get(other.uid, "another pod") for other in others),
    )


def _card_why(card: CardView, view: NodeView, pod: PodFact) -> str:
    """The first reason that keeps one container of `pod` off the card by itself; "" when none does."""
    if pod.request is None:
        return ""
    unwanted = unselected(card, pod.request.selection)
    if unwanted is not None:
        return unwanted.value
    others = (r for r in view.reservations if r.uid != pod.uid and r.uuid == card.fact.uuid)
    bases = bases_of(card, others)
    reasons = (blocked(card.fact, bases, EMPTY, container.card) for container in pod.request.containers)
    return next((reason.value for reason in reasons if reason is not None), "")


def clip(message: str) -> str:
    """At most EVENT_BYTES of UTF-8, cut between characters."""
    raw = message.encode()
    if len(raw) <= EVENT_BYTES:
        return message
    return raw[: EVENT_BYTES - 3].decode(errors="ignore") + "..."
