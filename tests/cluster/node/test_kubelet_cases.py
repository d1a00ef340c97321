"""The shared cases of kubelet and plugin, on a real kubelet: what the one in memory does is what this one does."""

from collections.abc import AsyncIterator, Iterator

import pytest

from devcluster.node import NodeOptions, RealNode
from tests.agent.kubelet_cases import CASES, Case
from tests.cluster.node.kubelet_world import RealKubelet

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def quick_node(node_possible: None) -> Iterator[RealNode]:
    """A node whose status is written every second: the cases wait for it again and again."""
    with RealNode(NodeOptions(status_update_seconds=1)) as node:
        yield node


@pytest.fixture
async def kubelet(quick_node: RealNode) -> AsyncIterator[RealKubelet]:
    world = RealKubelet(quick_node)
    yield world
    await world.forget()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_shared_case(case: Case, kubelet: RealKubelet) -> None:
    await case(kubelet)
