"""Filter's latency at 20, 200 and 5,000 nodes beside a trivial extender, asked in turn in the same run.

Between two questions one pod ends on one node, so that no answer can come from a cache of the whole.
"""

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import quantiles

from benchmarks import synthetic
from benchmarks.results import Result

SIZES = {20: 1500, 200: 1500, 5_000: 600}
WARM_UP = 30


class Server:
    """A child that answers filter."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)

    def post(self, path: str, body: bytes) -> tuple[float, bytes]:
        """Seconds from the first byte sent to the last received, and the answer."""
        started = time.perf_counter()
        self._connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        content = response.read()
        seconds = time.perf_counter() - started
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {content[:200]!r}")
        return seconds, content


@contextmanager
def server(*arguments: str) -> Iterator[Server]:
    """Start a child and end it."""
    command = [sys.executable, "-m", "benchmarks.extender_server", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        yield Server(int(child.stdout.readline()))
        child.terminate()


def question(nodes: int, memory_mib: str) -> bytes:
    """A filter request of one shared pod, as kube-scheduler sends it."""
    pod = json.loads(synthetic.pod(0))
    pod["metadata"] |= {"uid": "asked", "name": "asked", "annotations": {}}
    pod["spec"].pop("nodeName")
    pod["status"] = {"phase": "Pending"}
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    limits["volcano.sh/vgpu-memory"] = memory_mib
    pod["spec"]["containers"][0]["resources"]["requests"] = limits
    names = [synthetic.node_name(n) for n in range(nodes)]
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()


def run() -> list[Result]:
    """p50 and p99 at each size."""
    results = []
    for nodes, count in SIZES.items():
        ours, reference = measure(nodes, count)
        results += [
            Result(f"filter p50 at {nodes} nodes", percentile(ours, 50), percentile(reference, 50), "ms"),
            Result(f"filter p99 at {nodes} nodes", percentile(ours, 99), percentile(reference, 99), "ms"),
        ]
    return results


def measure(nodes: int, count: int) -> tuple[list[float], list[float]]:
    """Milliseconds of ours and of the trivial extender, asked in turn."""
    body = question(nodes, "20480")
    ours: list[float] = []
    reference: list[float] = []
    with server("ours", str(nodes)) as us, server("trivial") as them:
        _, answer = us.post("/v1/filter", body)
        if not json.loads(answer).get("NodeNames"):
            raise RuntimeError(f"no node fits, nothing to measure: {answer[:300]!r}")
        for turn in range(count + WARM_UP):
            us.post("/change", b"")
            figures = 1000 * us.post("/v1/filter", body)[0], 1000 * them.post("/v1/filter", body)[0]
            if turn >= WARM_UP:
                ours.append(figures[0])
                reference.append(figures[1])
    return ours, reference


def percentile(figures: list[float], which: int) -> float:
    """The percentile of the figures."""
    return quantiles(figures, n=100, method="inclusive")[which - 1]
