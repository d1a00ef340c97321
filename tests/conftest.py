"""Rules for the whole test run: hypothesis profiles, one line for each reason to skip, no silent skips in CI."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci",
    max_examples=1000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("soak", settings.get_profile("ci"), max_examples=20_000)
settings.load_profile("soak" if os.environ.get("VGPU_SOAK") else "ci")


FIRST_SKIPS = pytest.StashKey[dict[str, tuple[str, int, str]]]()
"""Where each reason to skip was met first."""
NOT_EVERY_MACHINE_HAS_A_CARD = "gpu"
"""The marker of tests that CI may skip."""


GROUPS = ("cluster/node", "cluster/preempt", "cluster")
"""Folders whose tests share a control plane. With WORKERS=3 `make test` runs each in a process of its own, with 2
all of them in one: three control planes want more cores than two."""
YIELDING = 10
"""The niceness of tests without a control plane beside those with one, for which time is real."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one of these folders stay together, whoever runs the others; side by side, the longest begin. This
    comes before xdist reads the marks."""
    for item in items:
        if _group(item) is not None:
            item.add_marker(pytest.mark.xdist_group(_group(item)))
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: _group(item) is None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Side by side, what needs no control plane stands back. Groups begin first: none runs later there."""
    if "PYTEST_XDIST_WORKER" in os.environ and _group(item) is None:
        os.setpriority(os.PRIO_PROCESS, 0, YIELDING)


def _group(item: pytest.Item) -> str | None:
    here = Path(__file__).parent
    groups = GROUPS if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) >= len(GROUPS) else GROUPS[-1:]
    return next((group for group in groups if item.path.is_relative_to(here / group)), None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tests skipped for one reason become one line with their number: the summary folds what has one place."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        first = item.config.stash.setdefault(FIRST_SKIPS, {})
        report.longrepr = first.setdefault(report.longrepr[2], report.longrepr)
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A test that CI should have run and that was skipped is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not os.environ.get("CI") or reporter is None or exitstatus != 0:
        return
    if not all(map(_may_be_skipped, reporter.stats.get("skipped", []))):
        reporter.write_line("skipped tests are failures in CI", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _may_be_skipped(report: pytest.TestReport | pytest.CollectReport) -> bool:
    return isinstance(report, pytest.TestReport) and NOT_EVERY_MACHINE_HAS_A_CARD in report.keywords
