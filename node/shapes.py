"""The shape of a URL: what is left when what counts, identifies or filters is taken out of it; pure.

A calendar's months, a shop's filters, a session's id and a wildcard name's labels are one shape each. A URL has up to
four, from narrow to wide, each with the site in it:

1. its path with digits as `#`, random-looking runs as `*`, parameters by name alone, and its host's labels;
2. on a host below the site: the same for any such host (a wildcard in the name service);
3. with two parameters or more: its path with any parameters (filters);
4. from two segments on: any path of as many segments below the first (filters and names in the path).
"""

import re
from typing import Final

import xxhash

from shared import urls

NAMES_MAX: Final = 16  # parameters that are looked at, and kept
SHAPE_CHARS_MAX: Final = 512
ANY_HOST: Final = "*."

# Runs with a digit, or longer than any word; the others stay, without a call for each.
_RUN = re.compile(r"%[0-9A-F]{2}|(?:(?<![0-9A-Za-z])|(?<=%[0-9A-F]{2}))(?=[A-Za-z]*+[0-9]|[A-Za-z]{24})[0-9A-Za-z]++")
_DIGITS = re.compile(r"[0-9]+")
_HEX = re.compile(r"[0-9A-Fa-f]{8,}")
_TURNS = re.compile(r"[0-9]+[A-Za-z]+[0-9]+[A-Za-z]|[A-Za-z]+[0-9]+[A-Za-z]+[0-9]")
_NOTABLE = re.compile(r"[0-9;]|[A-Za-z]{24}")
_MIXED_MIN: Final = 10


def patterns_of(url: str, site: str) -> tuple[str, ...]:
    """The digests of a canonical URL's shapes, the narrowest first."""
    return tuple(digest(shape) for shape in shapes_of(url, site))


def digest(shape: str) -> str:
    """12 hex digits, the same in every process."""
    return xxhash.xxh3_64_hexdigest(shape.encode())[:12]


def shapes_of(url: str, site: str) -> tuple[str, ...]:
    """A URL's shapes as text to show: `host/path?names`, the narrowest first."""
    host = urls.host_of(url)
    path, mark, query = urls.path_of(url).partition("?")
    below = host[: -len(site) - 1]
    names = f"?{_names(query)}" if mark else ""
    own = f"{_plain(below)}.{site}" if below else site
    found = [f"{own}{_plain(path)}{names}"[:SHAPE_CHARS_MAX]]
    if below and below != "www":
        found.append(f"{ANY_HOST}{site}{_plain(path)}{names}"[:SHAPE_CHARS_MAX])
    if "&" in names:
        found.append(f"{own}{_plain(path)}?*"[:SHAPE_CHARS_MAX])
    _, first, *others = path.split("/")
    if any(others):
        stars = "/".join(["*" if other else "" for other in others])
        found.append(f"{own}/{_plain(first)}/{stars}{names}"[:SHAPE_CHARS_MAX])
    return tuple(dict.fromkeys(found))


def _plain(text: str) -> str:
    return _RUN.sub(_run, text.partition(";")[0] + ";" * (";" in text)) if _NOTABLE.search(text) else text


def _run(found: re.Match[str]) -> str:
    """One run of letters and digits: itself, its digits as `#`, or `*` for what looks random."""
    run = found.group()
    if run[0] == "%":
        return run
    if run.isdigit():
        return "#"
    if run.isalpha() or len(run) >= _MIXED_MIN or _HEX.fullmatch(run) or _TURNS.search(run):
        return "*"
    return _DIGITS.sub("#", run)


def _names(query: str) -> str:
    """The parameters' names, each once, sorted."""
    return "&".join(sorted({_plain(part.partition("=")[0]) for part in query.split("&", NAMES_MAX)[:NAMES_MAX]}))
