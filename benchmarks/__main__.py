"""Command line: python -m benchmarks [NAME ...]. Ends with 1 when a ratio is beyond its limit.

Without names all are run but for PARTS, which measure again what others measure.
"""

import sys
from collections.abc import Callable

from benchmarks import filter_latency, freed_card, preemption, reclaim, s86, startup, steady, throughput, updates
from benchmarks.results import Result, read_limits, report

BENCHMARKS: dict[str, Callable[[], list[Result]]] = {
    "updates": updates.run,
    "startup": startup.run,
    "steady": steady.run,
    "preemption": preemption.run,
    "filter": filter_latency.run,
    "throughput": throughput.run,
    "sampling": freed_card.run,
    "reclaim": reclaim.run,
    "s86": s86.run,
}
PARTS: dict[str, Callable[[], list[Result]]] = {"s86-hundred": s86.only_the_hundred}


def main() -> int:
    """Run the named benchmarks, all without names."""
    names = sys.argv[1:] or list(BENCHMARKS)
    known = BENCHMARKS | PARTS
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    results: list[Result] = []
    for name in names:
        print(f"--- {name}", file=sys.stderr, flush=True)
        results += known[name]()
    return 0 if report(results, read_limits()) else 1


if __name__ == "__main__":
    sys.exit(main())
