"""Runs a command that the kernel ends as soon as its starter has ended, however that came about.

Started as `python -I -S leash.py STARTER_PID COMMAND...`; becomes the command. The death signal outlives exec,
so nothing of this file stays in the process. Imports only what the bare interpreter has.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask for the death signal, then become the command."""
    starter = int(sys.argv[1])
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != starter:  # the starter ended before the request reached the kernel
        sys.exit(1)
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
