"""What a benchmark hands back, the limits it is held to, and the table people see."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

LIMITS = Path(__file__).with_name("limits.toml")


@dataclass(frozen=True, slots=True)
class Result:
    """One figure of ours beside its reference, both in `unit`; `name` is also its key in limits.toml."""

    name: str
    ours: float
    reference: float
    unit: str
    note: str = ""

    @property
    def ratio(self) -> float:
        """Ours divided by the reference."""
        return self.ours / self.reference if self.reference else float("inf")


@dataclass(frozen=True, slots=True)
class Limit:
    """Bounds on a ratio, either may be absent."""

    at_least: float | None
    at_most: float | None

    def holds(self, ratio: float) -> bool:
        """Whether the ratio is within the bounds."""
        return (self.at_least is None or ratio >= self.at_least) and (
            self.at_most is None or ratio <= self.at_most
        )

    def __str__(self) -> str:
        parts = [f">= {self.at_least:g}"] if self.at_least is not None else []
        parts += [f"<= {self.at_most:g}"] if self.at_most is not None else []
        return " and ".join(parts) or "none"


def read_limits(path: Path = LIMITS) -> dict[str, Limit]:
    """The reviewed limits by result name."""
    content = tomllib.loads(path.read_text())
    return {name: Limit(row.get("at_least"), row.get("at_most")) for name, row in content.items()}


def report(results: list[Result], limits: dict[str, Limit]) -> bool:
    """Print the table; True when every limited ratio holds."""
    table = Table(title="each figure beside its reference of the same run")
    for column in ("what", "ours", "reference", "unit", "ratio", "limit", "", "note"):
        table.add_column(column, justify="right" if column in ("ours", "reference", "ratio") else "left")
    good = True
    for result in results:
        limit = limits.get(result.name, Limit(None, None))
        holds = limit.holds(result.ratio)
        good = good and holds
        verdict = "[green]ok[/]" if holds else "[red]over[/]"
        figures = [f"{result.ours:,.3g}", f"{result.reference:,.3g}", result.unit, f"{result.ratio:.2f}"]
        table.add_row(result.name, *figures, str(limit), verdict, result.note)
    Console(width=150).print(table)
    return good
