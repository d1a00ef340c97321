"""A page as sections: lines, then perhaps a table. Values enter, plain text leaves."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Section:
    """`lines` come before the table; a table without rows is not shown."""

    title: str = ""
    lines: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()

    @property
    def empty(self) -> bool:
        """True when it has nothing to say."""
        return not self.lines and not self.rows


def plain_text(sections: Iterable[Section]) -> str:
    """The page for any terminal: an empty line between sections, columns two spaces apart."""
    shown = [section for section in sections if not section.empty]
    return "\n\n".join("\n".join(_lines(section)) for section in shown) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest value, two spaces between them."""
    lines = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def labelled(pairs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Lines "Label:  value" with the values below each other; pairs without a value are left out."""
    told = [(f"{label}:", value) for label, value in pairs if value]
    width = max((len(label) for label, _ in told), default=0)
    return tuple(f"{label:<{width}}  {value}" for label, value in told)


def _lines(section: Section) -> list[str]:
    lines = [section.title] if section.title else []
    lines += section.lines
    return [*lines, table(section.head, section.rows)] if section.rows else lines
