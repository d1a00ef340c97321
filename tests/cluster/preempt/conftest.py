"""One running product for the scenarios of a file, and a judged case for each of them."""

import re
from collections.abc import Generator, Iterator

import pytest

from devcluster import Cluster
from tests.cluster.preempt.stage import Case, World, preempt_world


@pytest.fixture(scope="module")
def world(cluster: Cluster) -> Iterator[World]:
    """The product at work, without nodes."""
    with preempt_world(cluster) as running:
        yield running


@pytest.fixture
def case(world: World, request: pytest.FixtureRequest) -> Iterator[Case]:
    """One scenario, named after its row and judged at its end."""
    with world.case(case_name(request.node.name)) as started:
        yield started


def case_name(test: str) -> str:
    """A namespace's name for a test: its row, and what tells it from the row's other tests."""
    words = re.sub(r"[^a-z0-9]+", "-", test.lower().removeprefix("test_")).strip("-")
    return f"{words.partition('-')[0]}-{sum(i * ord(c) for i, c in enumerate(words)) % 9973}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed scenario shows what there was: pods, plans, events, the operator's last words."""
    report = yield
    case = getattr(item, "funcargs", {}).get("case")
    if call.when == "call" and call.excinfo is not None and isinstance(case, Case):
        report.sections.append(("the scenario", case.picture()))
    return report
