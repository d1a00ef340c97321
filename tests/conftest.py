"""Rules for the whole test run: hypothesis profiles, one line for each reason to skip, no silent skips in CI."""

import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

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


GROUPS = ("tests/cluster/node/", "tests/cluster/preempt/", "tests/cluster/")
"""Folders whose tests share a control plane. With WORKERS=3 `make test` runs each in a process of its own, with 2
all of them in one: three control planes want more cores than two."""
YIELDING = 10
"""The niceness of tests without a control plane beside those with one, for which time is real."""


class Groups(LoadScopeScheduling):
    """Tests of one group run in one process, in their order; the largest groups begin. (xdist's own groups by
    marks do nothing under pytest 9.2: they rename a test by a field that it has no more.)"""

    def _split_scope(self, nodeid: str) -> str:
        groups = GROUPS if self.numnodes >= len(GROUPS) else GROUPS[-1:]
        return next((group for group in groups if nodeid.startswith(group)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Groups:
    """How tests are shared out when there are several processes."""
    return Groups(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Side by side, what needs no control plane stands back. Groups begin first: none runs later there."""
    if "PYTEST_XDIST_WORKER" in os.environ and not item.nodeid.startswith(GROUPS):
        os.setpriority(os.PRIO_PROCESS, 0, YIELDING)


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
