"""A certificate authority of a test's own: certificates for servers on loopback and for named clients, by openssl."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests import servers

LOOPBACK = "IP:127.0.0.1,DNS:localhost"


class Pair(NamedTuple):
    """Two PEM files."""

    cert: Path
    key: Path


class Authority:
    """Signs what it is asked for, for two days."""

    def __init__(self, folder: Path) -> None:
        servers.need(shutil.which("openssl") or "/usr/bin/openssl", of="Debian's package openssl")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ca = folder / "ca.pem"
        _openssl(
            *("req", "-x509", "-nodes", "-days", "2", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", folder / "ca.key", "-out", self.ca, "-subj", "/CN=authority"),
            *("-addext", "keyUsage=critical,keyCertSign"),
        )

    def sign(self, name: str, *, alt: str = LOOPBACK) -> Pair:
        """A certificate whose common name is `name`, for servers and for clients."""
        pair = Pair(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        request, more = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        more.write_text(f"subjectAltName={alt}\nextendedKeyUsage=serverAuth,clientAuth\n")
        _openssl(
            *("req", "-new", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", pair.key, "-out", request, "-subj", f"/CN={name}"),
        )
        _openssl(
            *("x509", "-req", "-days", "2", "-in", request, "-out", pair.cert, "-extfile", more),
            *("-CA", self.ca, "-CAkey", self.folder / "ca.key", "-CAcreateserial"),
        )
        return pair


def _openssl(*arguments: object) -> None:
    line = ["openssl", *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, f"{line}: {done.stderr}"
