"""How the story is told: chapters, tables, progress, and claims held against what was seen.

Enters: words and values. Leaves: text on a terminal or in a log. May not live here: clusters, and what is claimed.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from devcluster.errors import StartFailed
from devcluster.progress import Progress

LOG_WIDTH = 120
POLL_SECONDS = 0.25
INDENT = (0, 0, 0, 2)
UNLIMITED_WIDTH = 10_000
BLOCK_LABEL_WIDTH = 20


@dataclass(frozen=True, slots=True)
class Claim:
    """What is promised, what was seen, and whether the one bears out the other."""

    chapter: str
    promise: str
    seen: str
    holds: bool


class Stage:
    """Prints the story and keeps every claim that was made."""

    def __init__(self, width: int | None = None) -> None:
        console = Console(highlight=False)
        if width is None and not console.is_terminal:
            width = LOG_WIDTH
        self._console = Console(highlight=False, width=width) if width else console
        self._chapters = 0
        self._title = "the start"
        self._started = time.monotonic()
        self.claims: list[Claim] = []

    def chapter(self, title: str, shown: str) -> None:
        """Open a chapter with one sentence on what it shows."""
        self._chapters += 1
        self._title = f"{self._chapters}. {title}"
        self._console.print()
        self._console.rule(f"[bold]{escape(self._title)}[/]", align="left", style="dim")
        self._console.print(escape(shown), style="italic")
        self._console.print()

    def say(self, text: str) -> None:
        """A line of the story."""
        self._console.print(Padding(Text(text), INDENT, expand=False))

    def command(self, line: str) -> None:
        """The command whose output follows; on one line whatever the width, so that it can be copied."""
        self._console.print(Text(f"{' ' * INDENT[-1]}$ {line}", style="cyan"), soft_wrap=True)

    def output(self, text: str) -> None:
        """What a command printed; lines longer than the screen are cut."""
        for line in text.rstrip("\n").splitlines():
            shown = Text(line, no_wrap=True, overflow="ellipsis")
            self._console.print(Padding(shown, INDENT, expand=False) if line else "")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table; cells that hold several lines keep them. Where words would break, each row is a block."""
        shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for name in header:
            shown.add_column(name, overflow="fold")
        for row in rows:
            shown.add_row(*(Text(cell) for cell in row))
        wide = self._console.options.update(max_width=UNLIMITED_WIDTH)
        least = Measurement.get(self._console, wide, shown).minimum
        if least + INDENT[-1] > self._console.width:
            shown = self._blocks(header, rows)
        self._console.print(Padding(shown, INDENT, expand=False))
        self._console.print()

    def _blocks(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
        shown = Table.grid(padding=(0, 2, 0, 0))
        shown.add_column(max_width=BLOCK_LABEL_WIDTH)
        shown.add_column(overflow="fold")
        for row in rows:
            if shown.row_count:
                shown.add_row()
            for name, cell in zip(header, row, strict=True):
                shown.add_row(Text(name, style="bold"), Text(cell))
        return shown

    def claim(self, promise: str, seen: str, holds: bool) -> None:
        """Hold a promise against what was seen; the verdict is printed and kept."""
        self.claims.append(Claim(self._title, promise, seen, holds))
        mark, style = ("HELD", "bold green") if holds else ("NOT HELD", "bold red")
        shown = Table.grid(padding=(0, 2, 0, 0))
        shown.add_row(Text(mark, style=style, no_wrap=True), Text(promise))
        shown.add_row("", Text(f"seen: {seen}", style="dim"))
        self._console.print(shown)

    def working(self, what: str) -> Progress:
        """Progress of a step that may take more than two seconds."""
        return Progress(what, self._console.file)

    def wait(
        self,
        condition: Callable[[], bool],
        what: str,
        timeout_seconds: float = 90,
        instead: Callable[[], str] = lambda: "",
    ) -> None:
        """Wait for a condition. Raises StartFailed naming what was waited for, and what was seen `instead`."""
        started = time.monotonic()
        with self.working(f"waiting for {what}"):
            while not condition():
                if time.monotonic() - started > timeout_seconds:
                    seen = instead()
                    raise StartFailed(f"waited {timeout_seconds:.0f} s in vain for {what}{seen and ': ' + seen}")
                time.sleep(POLL_SECONDS)

    def stopped(self, problem: str) -> None:
        """The story cannot go on: that is a claim that did not hold."""
        self.claim("the chapter can be told to its end", problem, False)

    def finish(self) -> int:
        """Sum up; hands back the exit status."""
        failed = [claim for claim in self.claims if not claim.holds]
        seconds = int(time.monotonic() - self._started)
        self._console.print()
        self._console.rule("[bold]What was seen[/]", align="left", style="dim")
        held = len(self.claims) - len(failed)
        self._console.print(f"{held} of {len(self.claims)} claims held; {seconds // 60} min {seconds % 60} s.")
        for claim in failed:
            self._console.print(Text(f"NOT HELD in {claim.chapter}: {claim.promise}; seen: {claim.seen}"))
        return 1 if failed or not self.claims else 0
