"""A fake API server, a client of it and a writer whose fence the test holds."""

from collections.abc import AsyncIterator

import pytest

from tests.kube.fake_api import FakeApi
from vgpu.controller.fence import Fence
from vgpu.controller.writer import Writer
from vgpu.kube.client import ApiClient
from vgpu.settings import OperatorSettings


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi().serve() as running:
        yield running


@pytest.fixture
async def client(api: FakeApi) -> AsyncIterator[ApiClient]:
    async with api.client() as opened:
        yield opened


@pytest.fixture
def fence() -> Fence:
    """Open, on a clock that stands still."""
    fence = Fence(10, 4, lambda: 0.0)
    fence.renewed(0.0)
    return fence


@pytest.fixture
async def writer(client: ApiClient, fence: Fence) -> Writer:
    return Writer(client, fence, OperatorSettings(write_seconds=0.5))
