"""Become another program that dies with its parent: `python tether.py PARENT_PID PROGRAM ARGUMENT...`.

Run by path, so that it needs nothing but the standard library. It stands in front of every child of `up`, so
that a killed `up` leaves no server behind. A program of its own, because code between fork and exec is unsafe
beside threads.
Source: prctl(2), PR_SET_PDEATHSIG.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Replace this process; it ends instead if the parent is gone already."""
    parent, program, *rest = arguments
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"tether: prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != int(parent):  # it died before the line above: no signal will come any more
        sys.exit("tether: the parent is gone")
    os.execv(program, [program, *rest])  # noqa: S606 - to become the program is the purpose


if __name__ == "__main__":
    main(sys.argv[1:])
