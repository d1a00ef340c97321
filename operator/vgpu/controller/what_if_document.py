"""A Preview as JSON values: what /what-if answers. Values enter, values leave; layout is vgpu.report's."""

from typing import Any

from vgpu.core.facts import AssignedContainer
from vgpu.core.placement import Placement
from vgpu.core.preempt import words
from vgpu.core.preempt.facts import Amounts, Limits, Workload
from vgpu.core.preempt.limits import cards_words
from vgpu.core.preempt.preview import Goes, Outcome, Preview, QueueChange, Stays
from vgpu.core.wanted import plural_s, wanted_words


def what_if_document(answer: Preview, now_seconds: int, notes: tuple[str, ...] = ()) -> dict[str, Any]:
    """JSON values of the answer, given at `now_seconds`. `notes`: what else is to be known of the pod."""
    names = {pod.uid: pod.pod for pod in answer.pods}
    refusal, until = answer.refusal, answer.until_seconds
    return {
        "pods": [_pod(pod, entitled=pod.uid in answer.entitled) for pod in answer.pods],
        "outcome": answer.outcome.value,
        "answer": answer_words(answer),
        "seats": [_seat(names[uid], placement) for uid, placement in answer.seats],
        "rule": answer.rule,
        "exact": answer.exact,
        "cost": _cost(answer) if answer.goes else None,
        "costWords": _cost_words(answer),
        "victims": [_victim(one, answer.pods[0], now_seconds) for one in answer.goes],
        "stays": [_stays(one) for one in answer.stays],
        "spared": [{"reason": r.value, "count": count, "example": text} for r, count, text in answer.spared],
        "mayGo": answer.may_go,
        "limits": list(answer.limits),
        "takes": list(answer.takes),
        "anew": [_anew(one, now_seconds) for one in answer.anew],
        "waits": answer.waits,
        "alone": answer.alone,
        "queues": [_queue(change) for change in answer.queues],
        "reason": refusal.reason.value if refusal else "",
        "message": refusal.message if refusal else "",
        "helps": words.help_words(refusal.reason) if refusal else "",
        "untilSeconds": max(1, until - now_seconds) if until is not None else 0,
        "nearestNodes": [
            {
                "node": one.node,
                "reason": one.refusal.reason.value,
                "message": one.refusal.message,
                "mayGo": one.may_go,
            }
            for one in answer.obstacles
        ],
        "notes": list(notes),
    }


def answer_words(answer: Preview) -> str:
    """What would happen, in one sentence."""
    return "; ".join(filter(None, (_pods_words(answer), *(_anew_words(one) for one in answer.anew))))


def _pods_words(answer: Preview) -> str:
    """Of the pods that were asked about."""
    number, waits = len(answer.pods), answer.waits
    if answer.outcome is Outcome.NO:
        who, them = (f"all {number} pods wait", "them") if number > 1 else ("it waits", "it")
        return f"{who}; nobody would be evicted for {them}"
    who, many = _who_starts(answer)
    s, them = ("", "them") if many else ("s", "it")
    where = f"on {words.names_words(sorted({seat.node for _, seat in answer.seats}))}"
    if answer.takes:
        where += ", on cards that are held for others"
    others = f"; {waits} wait{'' if waits > 1 else 's'}" if waits else ""
    if answer.outcome is Outcome.FITS_NOW:
        return f"{who} fit{s} now {where}; nobody is evicted for {them}{others}"
    if answer.outcome is Outcome.AS_PODS_LEAVE:
        once = "once those are gone who leave already"
        return f"{who} start{s} {where} {once}; nobody is evicted for {them}{others}"
    count = len(answer.goes)
    return f"{count} pod{plural_s(count)} would be evicted, and {who} start{s} {where}{others}"


def _who_starts(answer: Preview) -> tuple[str, bool]:
    """In words, and whether they are many."""
    number, gang = len(answer.pods), answer.pods[0].gang
    if number == 1:
        return "it", False
    if not answer.alone and gang is not None:
        return f"gang {gang.key}", False
    starting = number - answer.waits
    return (f"{starting} of {number} pods" if answer.waits else f"all {number} pods"), starting > 1


def _anew_words(loser: Preview) -> str:
    """Of those who lose what is held for them, and what that costs."""
    many = len(loser.pods) > 1
    s, them = ("", "them") if many else ("s", "it")
    more = f" and {len(loser.pods) - 1} more" if many else ""
    who = f"{loser.pods[0].pod}{more}, whose cards are taken, plan{s} anew"
    count = len(loser.goes)
    if loser.outcome is Outcome.NO:
        return f"{who} and wait{s}: nobody would be evicted for {them}"
    if count:
        return f"{who}, and {count} more pod{plural_s(count)} would be evicted for {them}"
    nodes = words.names_words(sorted({seat.node for _, seat in loser.seats}))
    return f"{who} and start{s} on {nodes}: nobody more is evicted for {them}"


def _anew(loser: Preview, now_seconds: int) -> dict[str, Any]:
    return {
        "pods": [pod.pod for pod in loser.pods],
        "outcome": loser.outcome.value,
        "victims": [_victim(one, loser.pods[0], now_seconds) for one in loser.goes],
        "reason": loser.refusal.reason.value if loser.refusal else "",
    }


def _pod(pod: Workload, *, entitled: bool) -> dict[str, Any]:
    return {
        "pod": pod.pod,
        "uid": pod.uid,
        "queue": pod.queue,
        "priority": pod.priority,
        "entitled": entitled,
        "wanted": wanted_words(pod.request) if pod.request else "",
        "cards": sum(container.number for container in pod.request.containers) if pod.request else 0,
        "gang": pod.gang.key if pod.gang is not None and pod.gang.minimum > 1 else "",
    }


def _seat(pod: str, placement: Placement) -> dict[str, Any]:
    cards = [card for container in placement.containers for card in _cards(container)]
    return {"pod": pod, "node": placement.node, "cards": cards}


def _cards(container: AssignedContainer) -> list[dict[str, Any]]:
    return [
        {
            "container": container.name,
            "uuid": card.uuid,
            "memoryMiB": card.memory_mib,
            "cores": card.cores,
            "whole": card.whole,
        }
        for card in container.cards
    ]


def _victim(one: Goes, preemptor: Workload, now_seconds: int) -> dict[str, Any]:
    return {
        "pod": one.pod.pod,
        "uid": one.pod.uid,
        "node": one.pod.node or "",
        "queue": one.pod.queue,
        "priority": one.pod.priority,
        "rule": one.right.value,
        "why": words.why_it_goes(one.right, preemptor, one.pod) + _with_words(one),
        "lostGpuSeconds": one.lost_work / 1000,
        "loses": words.lost_words(one.pod, now_seconds).removeprefix("it loses "),
        "with": one.unit,
    }


def _stays(one: Stays) -> dict[str, Any]:
    return {
        "pod": one.pod.pod,
        "uid": one.pod.uid,
        "node": one.pod.node or "",
        "queue": one.pod.queue,
        "priority": one.pod.priority,
        "reason": one.reason.value if one.reason else "",
        "why": one.why,
        "couldGoBy": one.right.value if one.right else "",
    }


def _with_words(one: Goes) -> str:
    """What its gang has to do with it."""
    gang = one.pod.gang
    if one.unit:
        return f"; {one.unit} goes as a whole, on every node that it is on"
    if gang is None or gang.minimum <= 1:
        return ""
    return f"; gang {gang.key} runs on without it: it needs {gang.minimum} pods"


def _cost_words(answer: Preview) -> str:
    if answer.cost is None or not answer.goes:
        return ""
    return words.cost_words(answer.cost, answer.classes, _workloads(answer), sorted(_whole(answer)))


def _workloads(answer: Preview) -> int:
    """Whose pods go, by controller, as debts are counted."""
    return len({one.pod.owner.uid or one.pod.uid for one in answer.goes})


def _whole(answer: Preview) -> set[str]:
    """Gangs that stop."""
    return {one.pod.gang.key for one in answer.goes if one.unit and one.pod.gang is not None}


def _cost(answer: Preview) -> dict[str, Any] | None:
    cost = answer.cost
    if cost is None:
        return None
    by_class = zip(answer.classes, cost.pods_by_class, strict=True)
    return {
        "budgetViolations": cost.violations,
        "podsByPriority": {str(priority): count for priority, count in by_class if count},
        "workloads": _workloads(answer),
        "gangsStopped": sorted(_whole(answer)),
        "pods": cost.pods,
        "lostGpuSeconds": cost.lost_work / 1000,
        "freedCards": cards_words(cost.freed),
    }


def _queue(change: QueueChange) -> dict[str, Any]:
    queue = change.queue
    return {
        "name": change.name,
        "exists": queue is not None,
        "guarantee": _limits(queue.guarantee if queue else Limits()),
        "deserved": _limits(queue.deserved if queue else Limits()),
        "capability": _limits(queue.capability if queue else Limits()),
        "used": _amounts(change.usage.used),
        "entitled": _amounts(change.usage.entitled),
        "after": _amounts(change.after),
    }


def _limits(limits: Limits) -> dict[str, Any]:
    thousandths = limits.cards_thousandths
    return {
        "cards": None if thousandths is None else cards_words(thousandths),
        "memoryMiB": limits.memory_mib,
        "cores": limits.cores,
    }


def _amounts(amounts: Amounts) -> dict[str, Any]:
    return {
        "cards": cards_words(amounts.cards_thousandths),
        "memoryMiB": amounts.memory_mib,
        "cores": amounts.cores,
    }
