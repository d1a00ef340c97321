"""The answer of /explain as sections: the verdict, a row per node, a row per card."""

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
    why = card["why"] or "fits"
    return f"{why}: held whole by {card['heldWholeBy']}" if card["heldWholeBy"] else why
