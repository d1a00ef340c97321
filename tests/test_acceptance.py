"""docs/acceptance.md names a test for every scenario, and every test that it names exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "acceptance.md"
ROW = re.compile(r"^\| S(\d+) \|.*\| (.*) \| (.*) \|$", re.MULTILINE)
FILE = re.compile(r"`(\w+\.py)`: ((?:`test_\w+`(?:, )?)+)")
ROWS = {number: cluster + core for number, cluster, core in ROW.findall(PAGE.read_text())}


def defined() -> set[tuple[str, str]]:
    return {
        (path.name, name)
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }


def named(row: str) -> set[tuple[str, str]]:
    return {(file, test) for file, tests in FILE.findall(row) for test in re.findall(r"test_\w+", tests)}


@pytest.mark.parametrize("number", ROWS)
def test_every_scenario_names_tests_and_all_of_them_exist(number: str) -> None:
    assert named(ROWS[number])
    assert named(ROWS[number]) <= defined()


def test_the_page_has_rows() -> None:
    assert len(ROWS) > 70
