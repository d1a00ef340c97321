"""The leader's EndpointSlice."""

import pytest

from tests.kube.fake_api import FakeApi
from vgpu import names
from vgpu.controller.endpoint import endpoint_slice, publish_endpoint
from vgpu.controller.writer import Writer
from vgpu.errors import ConfigurationError

SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{names.NAMESPACE}/endpointslices"


async def test_service_leads_to_the_leader(api: FakeApi, writer: Writer) -> None:
    assert await publish_endpoint(writer, "10.1.2.3:9443", names.NAMESPACE)
    assert await publish_endpoint(writer, "10.1.2.4:9443", names.NAMESPACE)
    stored = api.get(SLICES, "vgpu-extender-ipv4", names.NAMESPACE)
    assert stored is not None
    assert stored["metadata"]["labels"]["kubernetes.io/service-name"] == names.EXTENDER_SERVICE
    assert stored["endpoints"] == [{"addresses": ["10.1.2.4"], "conditions": {"ready": True}}]
    assert stored["ports"] == [{"name": "https", "port": 9443, "protocol": "TCP"}]


@pytest.mark.parametrize("address", ["127.0.0.1:9443", "[::1]:9443", "0.0.0.0:1", "169.254.1.1:1"])
async def test_address_that_no_slice_may_hold_is_left_to_the_lease(
    api: FakeApi, writer: Writer, address: str
) -> None:
    assert not await publish_endpoint(writer, address, names.NAMESPACE)
    assert api.requests == []


def test_each_address_family_has_a_slice_of_its_own() -> None:
    four, six = endpoint_slice("10.1.2.3:1", "n"), endpoint_slice("[fd00::1]:1", "n")
    assert four is not None
    assert six is not None
    assert (four.family, six.family, six.address) == ("IPv4", "IPv6", "fd00::1")
    assert four.name != six.name


@pytest.mark.parametrize(
    "address", ["", "example.com:9443", "10.0.0.1", "10.0.0.1:x", "10.0.0.1:0", "10.0.0.1:70000"]
)
def test_what_is_no_address_is_named(address: str) -> None:
    with pytest.raises(ConfigurationError, match="VGPU_ADVERTISE_ADDRESS"):
        endpoint_slice(address, "n")
