"""Random worlds: every invariant after every event, whatever the order of events, losses and restarts."""

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from tests.core.happenings import HAPPENINGS, steps_from
from tests.core.invariants import check_all
from tests.core.world import Step, World


def run(steps: list[Step]) -> None:
    """Let the steps happen and check after each."""
    world = World()
    check_all(world)
    for name, a, b in steps:
        HAPPENINGS[name](world, a, b)
        check_all(world)


RUNS = st.binary(min_size=36, max_size=90).map(steps_from)


@given(RUNS)
def test_every_invariant_holds_after_every_event(steps: list[Step]) -> None:
    note(f"steps: {[step for step in steps if step[0] != 'nothing']}")
    run(steps)


@pytest.mark.soak
@given(RUNS)
def test_every_invariant_holds_after_every_event_in_the_long_run(steps: list[Step]) -> None:
    run(steps)
