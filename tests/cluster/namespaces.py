"""Machines of their own: network namespaces on a bridge, each with an address, a firewall and nothing else.

Whatever is made is named after this process and this use (`cr<pid>-<use>`), so that several runs stand side by side,
and a run removes what a killed one left. The lines between two machines are cut one way or both ways.
"""

import contextlib
import fcntl
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, overload

import pytest

from tests import servers

Direction = Literal["both", "out", "in"]

NETS = "10.231"  # a /24 below it for every use
OURS = re.compile(r"^cr(\d+)-")
TCP_BUT_RST = ("-p", "tcp", "!", "--tcp-flags", "RST", "RST")  # or the reset that REJECT sends would be caught itself

_uses = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Machine:
    """One namespace."""

    name: str
    address: str
    gate: str
    """The address at which this machine's servers are reached from inside."""
    namespace: str
    link: str
    """Its one interface beside the loopback."""

    @property
    def prefix(self) -> tuple[str, ...]:
        """In front of a command that is to run inside; `ip` becomes the command, so its pid is the child's."""
        return (_program("ip"), "netns", "exec", self.namespace)

    def cut(self, port: int) -> None:
        """Drop all that goes to this port of the gate, and all that comes from it; silently, as a broken switch."""
        self._add("OUTPUT", "-p", "tcp", "-d", self.gate, "--dport", str(port), "-j", "DROP")
        self._add("INPUT", "-p", "tcp", "-s", self.gate, "--sport", str(port), "-j", "DROP")

    def cut_from(self, peer: "Machine", *, direction: Direction = "both") -> None:
        """Drop what this machine sends to the peer ("out"), what comes from it ("in"), or both; silently."""
        for chain, side in _sides(direction):
            self._add(chain, side, peer.address, "-j", "DROP")

    def reset_from(self, peer: "Machine") -> None:
        """Answer every segment between the two with a reset, to whoever sent it, until mended."""
        for chain, side in _sides("both"):
            self._add(chain, side, peer.address, *TCP_BUT_RST, "-j", "REJECT", "--reject-with", "tcp-reset")

    def mend_from(self, peer: "Machine") -> None:
        """Undo all cuts and resets that this machine has against the peer; the peer's own stay."""
        for chain, side in _sides("both"):
            for rule in (("-j", "DROP"), (*TCP_BUT_RST, "-j", "REJECT", "--reject-with", "tcp-reset")):
                while self._rule("-D", chain, side, peer.address, *rule):
                    pass

    def set_link(self, state: Literal["up", "down"]) -> None:
        """Pull its plug or put it in again; nobody reaches it then, this process neither."""
        _ip("-n", self.namespace, "link", "set", self.link, state)

    def heal(self) -> None:
        """Forget every cut and reset, and put the plug in."""
        _run(*self.prefix, _program("iptables"), "-w", "-F")
        self.set_link("up")

    def pids(self) -> list[int]:
        """The processes inside."""
        return _pids(self.namespace)

    def _add(self, chain: str, *rule: str) -> None:
        """Once only, so that one removal is enough."""
        if not self._rule("-C", chain, *rule):
            assert self._rule("-A", chain, *rule), f"{self.name}: iptables refuses {chain} {rule}"

    def _rule(self, verb: str, chain: str, *rule: str) -> bool:
        return _run(*self.prefix, _program("iptables"), "-w", verb, chain, *rule, check=False) == 0


@overload
def machines(wanted: int) -> AbstractContextManager[list[Machine]]: ...
@overload
def machines(wanted: Sequence[str]) -> AbstractContextManager[dict[str, Machine]]: ...
def machines(wanted: int | Sequence[str]) -> AbstractContextManager[Any]:
    """That many namespaces on one bridge, or one for every name; a skip where they cannot be, a failure under CI."""
    if isinstance(wanted, int):
        return _listed(wanted)
    return _named(wanted)


@contextlib.contextmanager
def _listed(count: int) -> Iterator[list[Machine]]:
    with _named([f"m{i}" for i in range(count)]) as found:
        yield list(found.values())


@contextlib.contextmanager
def _named(names: Sequence[str]) -> Iterator[dict[str, Machine]]:
    _needed()
    assert len(set(names)) == len(names) <= 99, "every machine has a name of its own, and a link's name has 15 letters"
    tag = f"cr{os.getpid()}-{next(_uses)}"
    try:
        with _alone():
            remove_leavings()
            net = _free_net()
            _ip("link", "add", f"{tag}b", "type", "bridge")
            _ip("addr", "add", f"{net}.1/24", "dev", f"{tag}b")
            _ip("link", "set", f"{tag}b", "up")
        found = {name: _machine(tag, i, name, net) for i, name in enumerate(names)}
        yield found
    finally:
        _remove(f"{tag}-", f"{tag}[a-z]")


def _machine(tag: str, number: int, name: str, net: str) -> Machine:
    outer, inner = f"{tag}o{number}", f"{tag}i{number}"
    machine = Machine(name, f"{net}.{number + 2}", gate=f"{net}.1", namespace=f"{tag}-{name}", link=inner)
    _ip("netns", "add", machine.namespace)
    _ip("link", "add", outer, "type", "veth", "peer", "name", inner)
    _ip("link", "set", outer, "master", f"{tag}b")
    _ip("link", "set", outer, "up")
    _ip("link", "set", inner, "netns", machine.namespace)
    _ip("-n", machine.namespace, "addr", "add", f"{machine.address}/24", "dev", inner)
    _ip("-n", machine.namespace, "link", "set", inner, "up")
    _ip("-n", machine.namespace, "link", "set", "lo", "up")
    return machine


def remove_leavings() -> list[str]:
    """Remove what runs left that were killed half way; the names of what was found."""
    dead = [name for name in (*_namespaces(), *_links()) if _owner_is_gone(name)]
    for tag in {found.group(0) for name in dead if (found := OURS.match(name))}:
        _remove(re.escape(tag), re.escape(tag))
    return dead


def leavings(pid: int) -> list[str]:
    """The namespaces and links here that carry this process's id."""
    return [name for name in (*_namespaces(), *_links()) if name.startswith(f"cr{pid}-")]


def _remove(namespace: str, link: str) -> None:
    """Remove namespaces and links whose names begin with these patterns, and end what still runs inside."""
    for name in _namespaces():
        if re.match(namespace, name):
            for pid in _pids(name):  # a process inside would keep the namespace alive without its name
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            _ip("netns", "del", name, check=False)
    for name in _links():
        if re.match(link, name):
            _ip("link", "del", name, check=False)  # its other end went with the namespace, or goes with this one


def _sides(direction: Direction) -> list[tuple[str, str]]:
    out, into = ("OUTPUT", "-d"), ("INPUT", "-s")
    return {"both": [out, into], "out": [out], "in": [into]}[direction]


def _owner_is_gone(name: str) -> bool:
    found = OURS.match(name)
    return found is not None and not Path(f"/proc/{found.group(1)}").exists()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One process at a time looks for a free net and takes it."""
    with (Path(tempfile.gettempdir()) / "crawlring-machines.lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _free_net() -> str:
    """The first three numbers of a /24 that no interface here has."""
    used = {address["local"].rpartition(".")[0] for link in _asked("addr") for address in link.get("addr_info", ())}
    free = (net for number in range(250) if (net := f"{NETS}.{number}") not in used)
    return next(free)


def _namespaces() -> list[str]:
    return [entry["name"] for entry in _asked("netns")]


def _links() -> list[str]:
    return [entry["ifname"] for entry in _asked("link") if "ifname" in entry]


def _asked(what: str) -> list[dict[str, Any]]:
    done = subprocess.run([_program("ip"), "-j", what, "list"], capture_output=True, text=True, timeout=20, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout or "[]")
    return found


def _pids(namespace: str) -> list[int]:
    command = [_program("ip"), "netns", "pids", namespace]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return [int(line) for line in done.stdout.split()]


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
