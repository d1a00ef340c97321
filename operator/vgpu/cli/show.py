"""Shows sections on a terminal, or as plain text where there is none; and that something takes a while."""

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vgpu.report.sections import Section, plain_text

PATIENCE_SECONDS = 2.0


def show(sections: Iterable[Section]) -> None:
    """Tables that fit the terminal; into a file or pipe whole lines, so that nothing is cut."""
    console = Console(highlight=False)
    if not console.is_terminal:
        sys.stdout.write(plain_text(sections))
        return
    for section in sections:
        if not section.empty:
            _show(console, section)


@contextmanager
def patience(what: str) -> Iterator[None]:
    """Says what is waited for once it takes over 2 s; on a terminal only, and not where the answer goes."""
    status = Console(stderr=True).status(what)
    timer = threading.Timer(PATIENCE_SECONDS, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def _show(console: Console, section: Section) -> None:
    if section.title:
        console.print(Text(section.title, style="bold"))
    for line in section.lines:
        label, colon, rest = line.partition(":")
        console.print(Text.assemble((label + colon, "bold" if not section.title else ""), rest), soft_wrap=False)
    if section.rows:
        shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for title in section.head:
            shown.add_column(title, overflow="fold")
        for row in section.rows:
            shown.add_row(*(Text(cell) for cell in row))
        console.print(Padding(shown, (0, 0, 0, 1)))
    else:
        console.print()
