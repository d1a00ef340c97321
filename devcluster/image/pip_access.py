"""How pip inside a build reaches the package index that pip outside reaches.

Enters: pip's own settings, from its environment variables and files. Leaves: arguments for `buildah bud` that hand
them to the Dockerfile's pip commands as secrets, which get into no image. May not live here: any address.
"""

import os
import subprocess
import sys
from pathlib import Path

from devcluster.errors import BuildFailed

SETTINGS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout", "retries")
CERTIFICATE = "cert"
CERTIFICATE_INSIDE = "/run/secrets/pip-ca"
PLACES = (":env:.", "install.", "global.")


def pip_secrets(folder: Path) -> list[str]:
    """Write pip's settings into the folder and hand back the arguments that carry them into a build.

    Raises BuildFailed when pip cannot tell its settings, OSError.
    """
    found = _settings()
    lines = ["[global]", *(f"{name} = {found[name]}" for name in SETTINGS if name in found)]
    arguments = []
    certificate = found.get(CERTIFICATE) or os.environ.get("SSL_CERT_FILE", "")
    if certificate:
        lines.append(f"{CERTIFICATE} = {CERTIFICATE_INSIDE}")
        arguments += ["--secret", f"id=pip-ca,src={certificate}"]
    settings = folder / "pip.conf"
    settings.write_text("\n".join(lines) + "\n")
    return [*arguments, "--secret", f"id=pip-conf,src={settings}"]


def _settings() -> dict[str, str]:
    """What pip's own files and variables say; a place named earlier in PLACES goes over a later one."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if listed.returncode != 0:
        raise BuildFailed(f"pip could not tell its settings: {listed.stderr.strip()}")
    pairs = dict(line.split("=", 1) for line in listed.stdout.splitlines() if "=" in line)
    found: dict[str, str] = {}
    for place in reversed(PLACES):
        for key, value in pairs.items():
            if key.startswith(place):
                found[key.removeprefix(place)] = value.strip("'\"")
    return found
