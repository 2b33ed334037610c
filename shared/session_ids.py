"""Session ids in URLs, of the shapes that servers are known to mint; pure string work.

They are taken off only where an operator asks (`urls.Form`): each visit mints new URLs for the same pages, but a site
may need them. A known name with a value of the length that its generator gives counts, never any value of that name.
Whole tokens go (a parameter, a path parameter, a segment), so that what is left holds no new one. Sources: Heritrix'
StripSessionIDs and StripSessionCFIDs, Nutch's regex-normalize, the servers' documentation.
"""

import re
from typing import Final

# Session ids as servers mint them: a known name with a value of the length that its generator gives, never any value.
# Servlet containers and older PHP 32 characters (Tomcat adds `.node`), PHP's other settings 26 or 40, IIS 24 letters
# behind a name of eight, ASP.NET a segment of 24 in brackets; ColdFusion two parameters that only count together.
_PARAM: Final = re.compile(
    r"_?(?:[lj]|bv_)?(?:sid|sessionid|phpsessid)=[0-9a-z]{32}|jsessionid=[0-9a-z]{32}\.[0-9a-z_-]{1,32}"
    r"|phpsessid=(?:[0-9a-v]{26}|[0-9a-f]{40})|aspsessionid[a-z]{8}=[a-z]{24}",
    re.IGNORECASE,
)
_SEGMENT: Final = re.compile(r"\((?:[a-z]\([0-9a-z]{24}\))+\)", re.IGNORECASE)
_BARE: Final = re.compile(r"\([0-9a-z]{24}\)", re.IGNORECASE)  # ASP.NET 1.1; only in front of a page of that kind
_ASP_PAGE: Final = re.compile(r"\.as[pmh]x(?:\Z|/)", re.IGNORECASE)
_CF_ID: Final = re.compile(r"cfid=[0-9]{1,20}", re.IGNORECASE)
_CF_TOKEN: Final = re.compile(r"cftoken=(?:[0-9]{8}|[0-9a-f-]{35})", re.IGNORECASE)


def less(path: str) -> str:
    """A path, without its first slash, less its session ids; a segment that would become `.` or `..` keeps its own."""
    if ";" not in path and "(" not in path:
        return path
    *folders, page = path.split("/")
    bare = _ASP_PAGE.search(path) is not None
    kept = [folder for folder in folders if not (_SEGMENT.fullmatch(folder) or (bare and _BARE.fullmatch(folder)))]
    return "/".join([_segment_less(segment) for segment in (*kept, page)])


def pairs_less(pairs: list[str]) -> list[str]:
    """A query's `name=value` parts less the session ids, also those that hang on a value (`a=1;jsessionid=...`)."""
    kept = [pair for pair in map(_pair_less, pairs) if pair is not None]
    if any(map(_CF_ID.fullmatch, kept)) and any(map(_CF_TOKEN.fullmatch, kept)):
        return [pair for pair in kept if not (_CF_ID.fullmatch(pair) or _CF_TOKEN.fullmatch(pair))]
    return kept


def _segment_less(segment: str) -> str:
    head, *params = segment.split(";")
    rest = ";".join([head, *(param for param in params if not _PARAM.fullmatch(param))])
    return segment if rest in {".", ".."} else rest


def _pair_less(pair: str) -> str | None:
    kept = [piece for piece in pair.split(";") if not _PARAM.fullmatch(piece)]
    return ";".join(kept) if kept else None
