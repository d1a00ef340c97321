"""Every view is made before the first question, and others have their turn meanwhile."""

import asyncio

import pytest

from tests.controller.cluster_facts import inventory, node
from vgpu.controller import warm
from vgpu.core.ledger import Ledger


async def test_every_view_is_made_and_others_run_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "TURN_SECONDS", 0.0)
    ledger = Ledger()
    for number in range(20):
        ledger.put_node(node(f"n{number}"))
        ledger.put_inventory(inventory(f"n{number}"))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await warm.warm_views(ledger)
    task.cancel()
    counted = ledger.recounts
    for name in ledger.nodes():
        ledger.view(name)
    assert ledger.recounts == counted == 20
    assert turns >= 19
