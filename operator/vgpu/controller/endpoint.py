"""Where the Service of the extender leads: to the leader, by one EndpointSlice.

Enters: the leader's host:port. Leaves: one apply through the writer after each take-over. May not live here: the
Lease's annotation, which says the same in every case.
"""

import ipaddress
import logging
import os

from vgpu import names
from vgpu.controller.writer import SliceWrite, Writer
from vgpu.errors import ConfigurationError
from vgpu.settings import OperatorSettings

logger = logging.getLogger(__name__)


def endpoint_slice(address: str, namespace: str) -> SliceWrite | None:
    """The EndpointSlice for "host:port" or "[v6]:port"; None for an address that no EndpointSlice may hold.

    The API server refuses loopback, link-local and unspecified addresses there; then only the Lease leads to us.
    Raises ConfigurationError when it is not an IP address with a port.
    """
    host, _, port = address.rpartition(":")
    try:
        ip = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        number = int(port)
    except ValueError as error:
        raise ConfigurationError(
            f"VGPU_ADVERTISE_ADDRESS {address!r} is not an IP address and a port, as 10.0.0.7:9443"
        ) from error
    if not 1 <= number <= 65535:
        raise ConfigurationError(f"VGPU_ADVERTISE_ADDRESS {address!r}: the port is not in 1..65535")
    if ip.is_loopback or ip.is_link_local or ip.is_unspecified or ip.is_multicast:
        return None
    return SliceWrite(namespace, names.EXTENDER_SERVICE, str(ip), "IPv4" if ip.version == 4 else "IPv6", number)


def advertised_address(settings: OperatorSettings) -> str:
    """host:port under which kube-scheduler reaches this replica. Raises ConfigurationError when none is known."""
    if settings.advertise_address:
        endpoint_slice(settings.advertise_address, settings.namespace)  # checks it
        return settings.advertise_address
    pod_ip = os.environ.get("POD_IP", "")
    if not pod_ip:
        raise ConfigurationError(
            "kube-scheduler could not reach this replica: set POD_IP (from status.podIP) or VGPU_ADVERTISE_ADDRESS"
        )
    host = f"[{pod_ip}]" if ":" in pod_ip else pod_ip
    return f"{host}:{settings.extender_port}"


async def publish_endpoint(writer: Writer, address: str, namespace: str) -> bool:
    """Let the Service lead to `address`. False when no EndpointSlice may hold it.

    Raises ConfigurationError and what the writer raises; equal content changes nothing, so it may be repeated.
    """
    endpoints = endpoint_slice(address, namespace)
    if endpoints is None:
        logger.info("no EndpointSlice for address=%s: the Lease's annotation alone says it", address)
        return False
    await writer.apply_endpoint_slice(endpoints)
    return True
