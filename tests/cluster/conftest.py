"""One real control plane for all tests of this folder, and the way back to a clean state between them.

With KUBECONFIG and VGPU_USE_EXISTING_CLUSTER=1 the tests that can run on somebody else's cluster do so; those that
need to own it are skipped.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster import Cluster, ClusterAccess, ExistingCluster, Options, existing_is_wanted
from devcluster.product import KINDS, is_served, remove_policies

CRDS = Path(__file__).resolve().parents[2] / "crds"


@pytest.fixture(scope="session")
def any_cluster() -> Iterator[ClusterAccess]:
    """The cluster of this run, own or existing: for tests that only ask its API server."""
    with ExistingCluster() if existing_is_wanted() else Cluster(Options()) as running:
        yield running


@pytest.fixture(scope="session")
def cluster(any_cluster: ClusterAccess) -> Cluster:
    """Our own cluster of this run: API server, controller-manager without its node writers, kwok; no scheduler."""
    if not isinstance(any_cluster, Cluster):
        pytest.skip("needs a cluster of our own")
    return any_cluster


@pytest.fixture
def clean_cluster(cluster: Cluster) -> Iterator[Cluster]:
    """Our own cluster without pods, nodes, custom objects and admission policies, before the test and after it."""
    cluster.clear()
    remove_policies(cluster)  # a deleted policy acts for a moment longer, and would refuse what this test writes
    yield cluster
    cluster.clear()


@pytest.fixture(scope="session")
def crds(any_cluster: ClusterAccess) -> list[str]:
    """The custom resource definitions of this repository, applied and served; hands back their names."""
    files = sorted(CRDS.glob("*.yaml"))
    if not files:
        pytest.fail(f"{CRDS} holds no custom resource definitions")
    any_cluster.apply(files)
    names = any_cluster.kubectl(
        "get", "-o", "name", *(part for path in files for part in ("-f", str(path)))
    ).split()
    any_cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", *names)
    # An established kind may still answer "storage is (re)initializing" for a moment.
    any_cluster.wait_until(lambda: all(is_served(any_cluster, kind) for kind in KINDS), "the kinds to be served")
    return names
