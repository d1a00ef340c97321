"""Whether a real node can run on this machine, and if not, what is in the way.

Leaves: one line for people. May not live here: installing anything (`devcluster/install-packages` does).
"""

import os
import shutil
import subprocess
import sys

from devcluster.errors import NotSupported
from devcluster.node.images import BUSYBOX
from devcluster.node.runtime import CNI_PLUGINS

PROGRAMS = ("runc", "iptables", "ip", "nsenter", "unshare")
SEARCH_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
TRIAL = ("unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "true")


def why_impossible() -> str | None:
    """What keeps a real node from running here; None where it can run."""
    if sys.platform != "linux":
        return "a real node needs Linux"
    if os.geteuid() != 0:
        return "a real node needs root, for namespaces of its own"
    missing = [name for name in PROGRAMS if shutil.which(name, path=SEARCH_PATH) is None]
    missing += [str(path) for path in (BUSYBOX, CNI_PLUGINS / "bridge") if not path.exists()]
    if missing:
        return f"a real node needs {', '.join(missing)}: run devcluster/install-packages"
    trial = subprocess.run(TRIAL, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if trial.returncode != 0:
        return f"a real node needs namespaces, which this machine refuses: {trial.stderr.strip()}"
    return None


def require_possible() -> None:
    """Raise NotSupported where a real node cannot run."""
    reason = why_impossible()
    if reason is not None:
        raise NotSupported(reason)
