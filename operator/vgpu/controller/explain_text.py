"""core.explain's answer and a node's view as JSON values and as plain tables for a terminal.

Values enter, text leaves. May not live here: reasons, words of a verdict, HTTP.
"""

from typing import Any

from vgpu.core.explain import CardAnswer, Explanation, NodeAnswer
from vgpu.core.views import CardView, NodeView
from vgpu.report.explain import card_words
from vgpu.report.sections import table


def explanation_document(answer: Explanation) -> dict[str, Any]:
    """JSON values of an explanation."""
    return {
        "pod": answer.pod,
        "uid": answer.uid,
        "wanted": answer.wanted,
        "reason": answer.verdict.reason.value if answer.verdict.reason else "",
        "message": answer.verdict.message,
        "notes": list(answer.notes),
        "counts": {reason.value: count for reason, count in answer.counts},
        "fitting": list(answer.fitting),
        "nodes": [_node_document(node) for node in answer.nodes],
    }


def _node_document(node: NodeAnswer) -> dict[str, Any]:
    return {
        "node": node.node,
        "fits": node.refusal is None,
        "reason": node.refusal.reason.value if node.refusal else "",
        "message": node.refusal.message if node.refusal else "",
        "cards": [
            {
                "uuid": card.uuid,
                "index": card.index,
                "freeSlots": card.free_slots,
                "freeMemoryMiB": card.free_memory_mib,
                "freeCores": card.free_cores,
                "why": card.why,
                "heldWholeBy": card.held_whole_by,
                "leaving": list(card.leaving),
                "heldFor": list(card.held_for),
            }
            for card in node.cards
        ],
    }


def explanation_text(answer: Explanation) -> str:
    """The same for a person: the verdict, then a row per node and a row per card, if any node was asked."""
    head = [
        f"Pod:     {answer.pod}",
        f"Wants:   {answer.wanted or '-'}",
        f"Reason:  {answer.verdict.reason.value if answer.verdict.reason else '-'}",
        f"Message: {answer.verdict.message}",
        *(f"Note:    {note}" for note in answer.notes),
        "",
    ]
    nodes = [(n.node, "yes" if n.refusal is None else "no", *_refusal(n), str(len(n.cards))) for n in answer.nodes]
    cards = [
        (
            n.node,
            str(c.index),
            c.uuid,
            str(c.free_slots),
            str(c.free_memory_mib),
            str(c.free_cores),
            _why(c),
        )
        for n in answer.nodes
        for c in n.cards
    ]
    if not answer.nodes:
        return "\n".join(head)
    node_table = table(("NODE", "FITS", "REASON", "MESSAGE", "CARDS"), nodes)
    card_table = table(("NODE", "CARD", "UUID", "FREE SLOTS", "FREE MIB", "FREE CORES", "WHY"), cards)
    return "\n".join([*head, node_table, "", card_table, ""])


def _why(card: CardAnswer) -> str:
    return card_words(card.why, card.held_whole_by, card.leaving, card.held_for)


def _refusal(node: NodeAnswer) -> tuple[str, str]:
    return (node.refusal.reason.value, node.refusal.message) if node.refusal else ("-", "-")


def view_document(view: NodeView) -> dict[str, Any]:
    """JSON values of one node's view, bookings and reservations included."""
    return {
        "node": view.name,
        "open": view.closed is None,
        "reason": view.closed.reason.value if view.closed else "",
        "message": view.closed.message if view.closed else "",
        "slots": {"effective": view.effective_slots, "used": view.used_slots},
        "unconfirmed": list(view.unconfirmed),
        "cards": [_card_document(card) for card in view.cards],
        "orphans": [{"uuid": o.uuid, "pod": f"{o.holder.namespace}/{o.holder.name}"} for o in view.orphans],
        "reservations": [
            {"uid": r.uid, "uuid": r.uuid, "slots": r.slots, "memoryMiB": r.memory_mib, "cores": r.cores}
            for r in view.reservations
        ],
    }


def _card_document(card: CardView) -> dict[str, Any]:
    fact = card.fact
    return {
        "uuid": fact.uuid,
        "index": fact.index,
        "model": fact.model,
        "healthy": fact.healthy,
        "overbooked": card.overbooked,
        "slots": {"total": fact.slots, "used": card.used_slots},
        "memoryMiB": {"total": fact.memory_mib, "used": card.used_memory_mib},
        "cores": {"total": fact.cores, "used": card.used_cores},
        "holders": [
            {
                "pod": f"{h.namespace}/{h.name}",
                "uid": h.uid,
                "slots": h.slots,
                "memoryMiB": h.memory_mib,
                "cores": h.cores,
                "state": h.state.value,
            }
            for h in card.holders
        ],
    }
