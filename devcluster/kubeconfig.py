"""Reads the kubeconfigs that this package writes: one cluster, one token."""

import base64
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """Where the API server is, whom to trust, who to be."""

    server: str
    token: str
    tls: ssl.SSLContext


def read_kubeconfig(path: Path) -> ApiAccess:
    """Server, authority and token of the first cluster and user. Raises OSError, KeyError for another shape."""
    content: dict[str, Any] = yaml.safe_load(path.read_text())
    cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    return ApiAccess(cluster["server"], user["token"], ssl.create_default_context(cadata=authority))
