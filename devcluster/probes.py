"""Asks local programs whether they are up."""

import http.client
import socket
import ssl

TIMEOUT_SECONDS = 2.0


def is_healthy(port: int) -> bool:
    """Whether a program answers /healthz on a loopback port with 200, whatever certificate it made itself."""
    tls = ssl.create_default_context()
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS, context=tls)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def is_listening(port: int) -> bool:
    """Whether something takes connections on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(TIMEOUT_SECONDS)
        return probe.connect_ex(("127.0.0.1", port)) == 0
