"""The what-if answer as sections: what would happen, who goes, who stays, what the queues would use."""

from collections import Counter
from typing import Any

from vgpu.report.sections import Section, labelled

Document = dict[str, Any]


def what_if_sections(answer: Document) -> list[Section]:
    """Sections of the document that /what-if answers."""
    return [
        _head(answer),
        _seats(answer),
        _victims(answer),
        _stays(answer),
        _spared(answer),
        _queues(answer),
        _nearest(answer),
        Section(lines=tuple(f"Note: {note}" for note in answer["notes"])),
    ]


def _head(answer: Document) -> Section:
    pods = answer["pods"]
    entitled = {pod["entitled"] for pod in pods}
    rank = f"queue {pods[0]['queue']}, priority {pods[0]['priority']}, " + (
        "within what its queue deserves" if entitled == {True} else "beyond what its queue deserves"
    )
    takes = ", ".join(answer["takes"])
    lines = labelled(
        (
            ("Pod", _names(answer)),
            ("Wants", _wants(pods)),
            ("Rank", rank),
            ("Answer", answer["answer"]),
            ("Rule", answer["rule"] if answer["victims"] else ""),
            ("Least", _least(answer)),
            ("Cost", answer["costWords"]),
            ("Takes over", f"{takes}: of lower rank, planned anew at once" if takes else ""),
            ("Reason", answer["reason"]),
            ("Message", answer["message"]),
            ("Until", f"in {answer['untilSeconds']} s this is asked again" if answer["untilSeconds"] else ""),
            ("Would help", answer["helps"]),
        )
    )
    return Section(lines=lines)


def _names(answer: Document) -> str:
    pods = answer["pods"]
    if len(pods) == 1:
        return str(pods[0]["pod"])
    of_gang = f"of gang {pods[0]['gang']}" if pods[0].get("gang") and not answer.get("alone") else "like it"
    return f"{pods[0]['pod']} and {len(pods) - 1} more {of_gang}"


def _wants(pods: list[Document]) -> str:
    """Of all pods, the same request named once."""
    if len(pods) == 1:
        return str(pods[0]["wanted"])
    counts = Counter(pod["wanted"] for pod in pods)
    each = ", ".join(
        f"{count} pods of {wanted} each" if count > 1 else f"1 pod of {wanted}" for wanted, count in counts.items()
    )
    return f"{sum(pod.get('cards', 0) for pod in pods)} cards: {each}"


def _least(answer: Document) -> str:
    if not answer["victims"]:
        return ""
    return "proven: no other allowed set costs less" if answer["exact"] else "not proven: the search was cut short"


def _seats(answer: Document) -> Section:
    rows = [
        (seat["pod"], seat["node"], card["uuid"], _card_words(card))
        for seat in answer["seats"]
        for card in seat["cards"]
    ]
    return Section("Where it goes", head=("POD", "NODE", "CARD", "TAKES"), rows=tuple(rows))


def _card_words(card: Document) -> str:
    if card["whole"]:
        return "whole"
    return f"{card['memoryMiB']} MiB" + (f", {card['cores']} cores" if card["cores"] else "")


def _victims(answer: Document) -> Section:
    rows = tuple(
        (one["pod"], one["node"], one["queue"], str(one["priority"]), one["rule"], one["loses"], one["why"])
        for one in answer["victims"]
    )
    head = ("POD", "NODE", "QUEUE", "PRIORITY", "RULE", "LOSES", "WHY IT MAY GO")
    return Section("Who is evicted", head=head, rows=rows)


def _stays(answer: Document) -> Section:
    rows = tuple(
        (one["pod"], one["node"], one["queue"], str(one["priority"]), one["reason"] or "-", one["why"])
        for one in answer["stays"]
    )
    title = "Who stays on " + ", ".join(sorted({seat["node"] for seat in answer["seats"]}))
    return Section(title, head=("POD", "NODE", "QUEUE", "PRIORITY", "REASON", "WHY"), rows=rows)


def _spared(answer: Document) -> Section:
    rows = tuple((str(one["count"]), one["reason"], one["example"]) for one in answer["spared"])
    title = f"Who may not be evicted in the whole cluster ({answer['mayGo']} may)"
    return Section(title, head=("PODS", "REASON", "FOR EXAMPLE"), rows=rows)


def _queues(answer: Document) -> Section:
    rows = tuple(
        (
            one["name"],
            _amount(one["guarantee"]["cards"]),
            _amount(one["deserved"]["cards"]),
            _amount(one["capability"]["cards"]),
            one["used"]["cards"],
            one["after"]["cards"],
        )
        for one in answer["queues"]
    )
    head = ("QUEUE", "GUARANTEE", "DESERVED", "CAPABILITY", "CARDS NOW", "CARDS AFTER")
    return Section("Queues", head=head, rows=rows)


def _amount(value: str | None) -> str:
    return "-" if value is None else value


def _nearest(answer: Document) -> Section:
    rows = tuple((one["node"], str(one["mayGo"]), one["reason"], one["message"]) for one in answer["nearestNodes"])
    head = ("NODE", "MAY GO", "STILL LACKS", "MESSAGE")
    return Section("Nearest nodes, once all are gone who may be evicted there", head=head, rows=rows)
