"""A Python environment for each peer, in .venv/bench-<peer>, made on demand from its pinned requirements.

None of what a peer needs is a dependency of crawlring. `python -m tests.bench.environments NAME...` makes some by hand.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PEERS = Path(__file__).resolve().parent / "peers"
INSTALL_S = 600.0  # wheels over a slow line


class NotInstalled(Exception):
    """A peer's environment could not be made; its text says why."""


def python_of(name: str) -> Path:
    """The Python in which a peer's requirements are installed; NotInstalled says why there is none."""
    wanted = PEERS / f"requirements-{name}.txt"
    digest = hashlib.sha256(wanted.read_bytes() + sys.version.encode()).hexdigest()
    folder = ROOT / ".venv" / f"bench-{name}"
    ready, python = folder / "ready", folder / "bin" / "python"
    if ready.exists() and ready.read_text() == digest:
        return python
    print(f"setting up {folder.relative_to(ROOT)} (once)", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    # pip comes from outside: Debian parts ensurepip from Python.
    _done([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "--quiet"]
    _done([*pip, "-r", str(wanted)])
    ready.write_text(digest)
    return python


def versions(name: str) -> str:
    """What is pinned by hand: the lines of its requirements before the blank one."""
    return ", ".join((PEERS / f"requirements-{name}.txt").read_text().partition("\n\n")[0].splitlines())


def _done(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"{' '.join(command[1:4])} took more than {INSTALL_S:.0f} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line and not line.startswith(("WARNING", "[notice]"))]
        raise NotInstalled(lines[-1] if lines else f"{command[0]} ended with status {done.returncode}")


if __name__ == "__main__":
    for peer in sys.argv[1:]:
        print(python_of(peer))
