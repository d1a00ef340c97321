"""The answer of /explain as sections: the verdict, a row per node, a row per card."""

from collections.abc import Sequence
from typing import Any

from vgpu.report.sections import Section, labelled


def explain_sections(answer: dict[str, Any]) -> list[Section]:
    """Sections of the document that /explain answers."""
    head = labelled(
        (
            ("Pod", answer["pod"]),
            ("Wants", answer["wanted"]),
            ("Reason", answer["reason"] or "-"),
            ("Message", answer["message"]),
            *(("Note", note) for note in answer["notes"]),
        )
    )
    return [Section(lines=head), _nodes(answer), _cards(answer)]


def _nodes(answer: dict[str, Any]) -> Section:
    rows = tuple(
        (
            node["node"],
            "yes" if node["fits"] else "no",
            node["reason"] or "-",
            node["message"] or "-",
            str(len(node["cards"])),
        )
        for node in answer["nodes"]
    )
    return Section("Nodes", head=("NODE", "FITS", "REASON", "MESSAGE", "CARDS"), rows=rows)


def _cards(answer: dict[str, Any]) -> Section:
    rows = tuple(
        (
            node["node"],
            str(card["index"]),
            card["uuid"],
            str(card["freeSlots"]),
            str(card["freeMemoryMiB"]),
            str(card["freeCores"]),
            _why(card),
        )
        for node in answer["nodes"]
        for card in node["cards"]
    )
    head = ("NODE", "CARD", "UUID", "FREE SLOTS", "FREE MIB", "FREE CORES", "WHY")
    return Section("Cards", head=head, rows=rows)


def _why(card: dict[str, Any]) -> str:
    return card_words(card["why"], card["heldWholeBy"], card.get("leaving", ()), card.get("heldFor", ()))


def card_words(why: str, whole: str, leaving: Sequence[str], held_for: Sequence[str]) -> str:
    """Why a card does not take the pod, who has it, who is leaving it, for whom it is held; the first of many."""
    said = []
    if whole:
        said.append(f"held whole by {whole}" + (", which is leaving" if whole in leaving else ""))
    elif leaving:
        said.append(f"{_first(leaving)} leaving")
    if held_for:
        said.append(f"held for {_first(held_for)}")
    return ": ".join(filter(None, (why or "fits", "; ".join(said))))


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - 1} more" if names[1:] else ""
    return f"{names[0]}{more}"
