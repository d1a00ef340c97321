"""`python -m vgpu.agent.supervise`: the agent as its container runs it, all options in the environment.

The order of the children is the order of their end: the server first, which goes on serving for a while and
needs the reader meanwhile.
"""

import logging
import os
import sys

from vgpu.agent.supervise.policy import Limits
from vgpu.agent.supervise.process import ChildSpec
from vgpu.agent.supervise.supervisor import Supervisor

SERVER = ChildSpec("server", (sys.executable, "-m", "vgpu.agent.server"), {})
READER = ChildSpec("reader", (sys.executable, "-m", "vgpu.agent.reader"), {"VGPU_AGENT_FEED": "on"})

if __name__ == "__main__":
    level = os.environ.get("VGPU_LOG_LEVEL", "info").upper()
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s")
    sys.exit(Supervisor((SERVER, READER), Limits()).run())
