"""What an annotation-only node update costs, beside json.loads of the same bytes; nothing may be recounted."""

import json

from benchmarks import synthetic
from benchmarks.memory import fill, timed
from benchmarks.results import Result

NODES = 1_000
UPDATES = 10_000


def run() -> list[Result]:
    """10,000 updates over 1,000 nodes that hold 20 pods each."""
    filled = fill(NODES, NODES * synthetic.PODS_PER_NODE)
    ledger, translator = filled.ledger, filled.translator
    ledger.take_changes()
    recounts, version = ledger.recounts, ledger.version
    events = [synthetic.node(n % NODES, beat=1 + n // NODES) for n in range(UPDATES)]
    ours = timed(lambda raw: ledger.put_node(translator.decode_node(raw).fact), events)
    reference = timed(json.loads, events)
    note = f"{ledger.recounts - recounts} recounts, version {'same' if ledger.version == version else 'RAISED'}"
    return [Result("annotation-only update", 1e6 * ours / UPDATES, 1e6 * reference / UPDATES, "us", note)]
