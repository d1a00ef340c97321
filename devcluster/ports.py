"""Chooses TCP ports that are free on loopback."""

import random
import socket

# Below the range from which kernels pick ports for outgoing connections, so none is taken between choice and use.
FIRST_PORT = 20_000
LAST_PORT = 31_999
ATTEMPTS = 200


def free_ports(count: int) -> list[int]:
    """That many different free ports. Raises OSError when none can be found."""
    chosen: list[int] = []
    for port in random.sample(range(FIRST_PORT, LAST_PORT + 1), ATTEMPTS):
        if _is_free(port):
            chosen.append(port)
        if len(chosen) == count:
            return chosen
    raise OSError(f"fewer than {count} of {ATTEMPTS} random ports are free on 127.0.0.1")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
