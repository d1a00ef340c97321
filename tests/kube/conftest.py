"""A fake API server and a client of it, for each test that asks."""

from collections.abc import AsyncIterator

import pytest

from tests.kube.fake_api import FakeApi
from vgpu.kube.client import ApiClient


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi().serve() as running:
        yield running


@pytest.fixture
async def client(api: FakeApi) -> AsyncIterator[ApiClient]:
    async with api.client() as opened:
        yield opened
