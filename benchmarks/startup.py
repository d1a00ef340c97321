"""5,000 nodes with inventories and 100,000 bound pods into memory, beside json.loads of the same bytes.

Runs in a process of its own, so that its memory can be read.
"""

import json
import resource
import subprocess
import sys
from dataclasses import asdict

from benchmarks.memory import fill
from benchmarks.results import Result

NODES, PODS = 5_000, 100_000


def run() -> list[Result]:
    """Processor seconds to fold everything; the note gives the process's peak memory."""
    answer = subprocess.run(
        [sys.executable, "-m", "benchmarks.startup"], check=True, capture_output=True, text=True
    )
    return [Result(**row) for row in json.loads(answer.stdout)]


def main() -> None:
    """The child: fill, then print results as JSON."""
    filled = fill(NODES, PODS)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    note = f"{NODES:,} nodes, {PODS:,} pods, peak {peak_mib} MiB"
    rows = [Result("start-up", filled.ours_seconds, filled.reference_seconds, "cpu s", note)]
    print(json.dumps([asdict(row) for row in rows]))


if __name__ == "__main__":
    main()
