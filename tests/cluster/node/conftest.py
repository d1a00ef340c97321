"""One real node for all tests of this folder, and one product on it for those that need it.

Where a real node cannot run, the tests are skipped with one line that says why; in CI such a skip is a failure
(tests/conftest.py).
"""

from collections.abc import Iterator

import pytest

from devcluster.node import NodeOptions, RealNode, why_impossible
from tests.cluster.node.stage import NodeStage, staged_on


@pytest.fixture(scope="session")
def node_possible() -> None:
    """Skips where a real node cannot run."""
    reason = why_impossible()
    if reason is not None:
        pytest.skip(f"the real node is left out: {reason}")


@pytest.fixture(scope="session")
def real_node(node_possible: None) -> Iterator[RealNode]:
    """The node of this run, Ready, with busybox imported; its control plane has a controller-manager.

    Its status is written every second, so that tests need not wait for it; kubelet's default is 10 s.
    """
    with RealNode(NodeOptions(status_update_seconds=1)) as node:
        yield node


@pytest.fixture(scope="session")
def product(real_node: RealNode) -> Iterator[NodeStage]:
    """Operator, scheduler and agent at work on the node of this run."""
    with staged_on(real_node) as stage:
        yield stage


@pytest.fixture
def stage(product: NodeStage) -> Iterator[NodeStage]:
    """The product with an agent that runs, an open node and no pods, before the test and after it."""
    product.settle()
    yield product
    product.settle()
