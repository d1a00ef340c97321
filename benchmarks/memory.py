"""A ledger filled from synthetic objects, the way the operator fills it: raw bytes, translate, fold."""

import gc
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks import synthetic
from vgpu.controller.translate import Translator
from vgpu.core.ledger import Ledger
from vgpu.settings import OperatorSettings

BATCH = 500
GC_THRESHOLD = 50_000
"""What the operator sets too (facts of kopf's cost: a large heap makes the default threshold dear)."""


@dataclass(frozen=True, slots=True)
class Filled:
    """The ledger, its translator, and what decoding and folding cost beside json.loads of the same bytes."""

    ledger: Ledger
    translator: Translator
    ours_seconds: float
    reference_seconds: float


def fill(nodes: int, pods: int) -> Filled:
    """Nodes, their inventories and bound pods."""
    gc.set_threshold(GC_THRESHOLD)
    ledger = Ledger()
    known = {}
    translator = Translator(OperatorSettings(), known.get)
    costs = [
        _fold(
            (synthetic.node(n) for n in range(nodes)),
            lambda raw: ledger.put_node(translator.decode_node(raw).fact),
        ),
        _fold(
            (synthetic.inventory(n) for n in range(nodes)),
            lambda raw: ledger.put_inventory(translator.decode_inventory(raw).fact),
        ),
        _fold(
            (synthetic.pod(n) for n in range(pods)), lambda raw: ledger.put_pod(translator.decode_pod(raw).fact)
        ),
    ]
    return Filled(ledger, translator, sum(ours for ours, _ in costs), sum(reference for _, reference in costs))


def _fold(objects: Iterable[bytes], ours: Callable[[bytes], object]) -> tuple[float, float]:
    """Seconds of ours and of json.loads over the same objects, batch by batch, without making the objects."""
    total = reference = 0.0
    batch: list[bytes] = []
    for raw in objects:
        batch.append(raw)
        if len(batch) == BATCH:
            total += timed(ours, batch)
            reference += timed(json.loads, batch)
            batch = []
    return total + timed(ours, batch), reference + timed(json.loads, batch)


def timed(work: Callable[[bytes], object], batch: Iterable[bytes]) -> float:
    """Processor seconds of `work` over the batch."""
    started = time.process_time()
    for raw in batch:
        work(raw)
    return time.process_time() - started
