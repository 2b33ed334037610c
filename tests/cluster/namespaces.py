"""Machines of their own for nodes: network namespaces on a bridge, each with an address, a firewall and nothing else."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from tests import servers


@dataclass(frozen=True, slots=True)
class Machine:
    """One namespace."""

    name: str
    address: str
    gate: str
    """The address at which this machine's servers are reached from inside."""

    @property
    def prefix(self) -> tuple[str, ...]:
        """In front of a command that is to run inside."""
        return (_program("ip"), "netns", "exec", self.name)

    def cut(self, port: int) -> None:
        """Drop all that goes to this port of the gate, and all that comes from it; silently, as a broken switch."""
        for chain, to_it in (("OUTPUT", ("-d", self.gate, "--dport")), ("INPUT", ("-s", self.gate, "--sport"))):
            side, address, which = to_it
            _run(
                *self.prefix,
                _program("iptables"),
                "-A",
                chain,
                "-p",
                "tcp",
                side,
                address,
                which,
                str(port),
                "-j",
                "DROP",
            )

    def heal(self) -> None:
        _run(*self.prefix, _program("iptables"), "-F")


@contextlib.contextmanager
def machines(count: int) -> Iterator[list[Machine]]:
    """That many namespaces on one bridge; a skip that says what is missing, a failure under CI."""
    _needed()
    tag = f"cr{os.getpid() % 100_000}"
    bridge, net = f"{tag}b", f"10.231.{os.getpid() % 250}"
    gate = f"{net}.1"
    found = [Machine(f"{tag}n{i}", f"{net}.{i + 2}", gate) for i in range(count)]
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{gate}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for i, machine in enumerate(found):
            outer, inner = f"{tag}o{i}", f"{tag}i{i}"
            _ip("netns", "add", machine.name)
            _ip("link", "add", outer, "type", "veth", "peer", "name", inner)
            _ip("link", "set", outer, "master", bridge)
            _ip("link", "set", outer, "up")
            _ip("link", "set", inner, "netns", machine.name)
            _ip("-n", machine.name, "addr", "add", f"{machine.address}/24", "dev", inner)
            _ip("-n", machine.name, "link", "set", inner, "up")
            _ip("-n", machine.name, "link", "set", "lo", "up")
        yield found
    finally:
        for i, machine in enumerate(found):
            _ip("netns", "del", machine.name, check=False)
            _ip("link", "del", f"{tag}o{i}", check=False)
        _ip("link", "del", bridge, check=False)


def _needed() -> None:
    missing = [name for name in ("ip", "iptables") if shutil.which(name) is None]
    reason = ""
    if os.geteuid() != 0:
        reason = "network namespaces need root"
    elif missing:
        reason = f"{' and '.join(missing)} missing (Debian's packages iproute2 and iptables)"
    elif _run(_program("ip"), "netns", "list", check=False) != 0:
        reason = "this kernel has no network namespaces"
    if reason and servers.in_ci():
        pytest.fail(f"{reason}, and CI is set")
    if reason:
        pytest.skip(reason)


def _program(name: str) -> str:
    return shutil.which(name) or name


def _ip(*arguments: str, check: bool = True) -> None:
    _run(_program("ip"), *arguments, check=check)


def _run(*command: str, check: bool = True) -> int:
    line: Sequence[str] = command
    done = subprocess.run(line, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0 or not check, f"{line}: {done.stderr}"
    return done.returncode
