"""A Preview as JSON values: what /what-if answers. Values enter, values leave; layout is vgpu.report's."""

from typing import Any

from vgpu.core.facts import AssignedContainer
from vgpu.core.placement import Placement
from vgpu.core.preempt import words
from vgpu.core.preempt.cost import Cost
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
        "cost": _cost(answer.cost, answer.classes) if answer.goes else None,
        "costWords": words.cost_words(answer.cost, answer.classes) if answer.cost and answer.goes else "",
        "victims": [_victim(one, answer.pods[0], now_seconds) for one in answer.goes],
        "stays": [_stays(one) for one in answer.stays],
        "spared": [{"reason": r.value, "count": count, "example": text} for r, count, text in answer.spared],
        "mayGo": answer.may_go,
        "takes": list(answer.takes),
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
    nodes = words.names_words(sorted({placement.node for _, placement in answer.seats}))
    if answer.outcome is Outcome.FITS_NOW:
        return f"it fits now on {nodes}; nobody is evicted"
    if answer.outcome is Outcome.AS_PODS_LEAVE:
        return f"it starts on {nodes} once those are gone who leave already; nobody is evicted"
    if answer.outcome is Outcome.NO:
        return "it waits; nobody would be evicted for it"
    count = len(answer.goes)
    return f"{count} pod{plural_s(count)} would be evicted, and it starts on {nodes}"


def _pod(pod: Workload, *, entitled: bool) -> dict[str, Any]:
    return {
        "pod": pod.pod,
        "uid": pod.uid,
        "queue": pod.queue,
        "priority": pod.priority,
        "entitled": entitled,
        "wanted": wanted_words(pod.request) if pod.request else "",
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
        "why": words.why_it_goes(one.right, preemptor, one.pod),
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


def _cost(cost: Cost | None, classes: tuple[int, ...]) -> dict[str, Any] | None:
    if cost is None:
        return None
    return {
        "budgetViolations": cost.violations,
        "podsByPriority": {str(p): count for p, count in zip(classes, cost.pods_by_class, strict=True) if count},
        "workloadsStopped": cost.broken,
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
