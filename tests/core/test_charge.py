"""What a pod takes per card: the worst phase, not the sum of all."""

import pytest

from tests.core.building import INIT, SIDECAR, holds, share
from vgpu.core.charge import Charge, card_charges, pod_slots
from vgpu.core.facts import AssignedContainer

CASES: dict[str, tuple[list[AssignedContainer], dict[str, Charge], int]] = {
    "nothing": ([], {}, 0),
    "one share": ([holds(share("A", 10, 5))], {"A": Charge(1, 10, 5)}, 1),
    "no cores": ([holds(share("A", 10))], {"A": Charge(1, 10, 0, coreless=True)}, 1),
    "whole": ([holds(share("A", 10, whole=True))], {"A": Charge(1, 10, 0, exclusive=True)}, 1),
    "all cores": ([holds(share("A", 10, 100))], {"A": Charge(1, 10, 100, exclusive=True)}, 1),
    "two cards": ([holds(share("A", 1, 1), share("B", 1, 1))], {"A": Charge(1, 1, 1), "B": Charge(1, 1, 1)}, 2),
    "two containers on one card": (
        [holds(share("A", 10, 5)), holds(share("A", 20, 7))],
        {"A": Charge(2, 30, 12)},
        2,
    ),
    "init is a maximum": (
        [holds(share("A", 50, 1), kind=INIT), holds(share("A", 20, 7))],
        {"A": Charge(1, 50, 7)},
        1,
    ),
    "init steps follow each other": (
        [holds(share("A", 50, 1), kind=INIT), holds(share("A", 60, 1), kind=INIT)],
        {"A": Charge(1, 60, 1)},
        1,
    ),
    "a sidecar adds to what comes after it": (
        [
            holds(share("A", 50, 1), kind=INIT),
            holds(share("A", 10, 1), kind=SIDECAR),
            holds(share("A", 45, 1), kind=INIT),
            holds(share("A", 20, 1)),
        ],
        {"A": Charge(2, 55, 2)},
        2,
    ),
    "init alone, then app alone": (
        [holds(share("A", 9, whole=True), kind=INIT), holds(share("A", 9, whole=True))],
        {"A": Charge(1, 9, 0, exclusive=True)},
        1,
    ),
    "alone beside a container of its own pod": (
        [holds(share("A", 9, 1, whole=True)), holds(share("A", 1, 1))],
        {"A": Charge(2, 10, 2, exclusive=True, crowded=True)},
        2,
    ),
    "init and app on different cards": (
        [holds(share("A", 9, 1), share("B", 9, 1), kind=INIT), holds(share("C", 9, 1))],
        {"A": Charge(1, 9, 1), "B": Charge(1, 9, 1), "C": Charge(1, 9, 1)},
        2,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_pod_takes_the_worst_of_its_phases(case: str) -> None:
    containers, want_charges, want_slots = CASES[case]
    assert card_charges(containers) == want_charges
    assert pod_slots(containers) == want_slots
