"""What a page shows, as runs of text and addresses of images; pure, for comparing pages with each other.

A run is what stands between two tags, in lower case, without numbers and what looks random, without the names of
months and days, and without the words of the page's own host and query (and of links that differ in the query alone):
a wildcard host and a search page repeat them.
"""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote_plus

from shared import urls

TEXT_CHARS_MAX: Final = 262_144
RUNS_MAX: Final = 4_000  # runs of text looked at
LONG_RUN_CHARS: Final = 80  # prose, in which single words matter less than time
LINKS_MAX: Final = 300
IMAGES_MAX: Final = 300

_HIDDEN = re.compile(r"<(?:(script|style|template|noscript|svg)(?=[\s/>])|!--)", re.IGNORECASE)
_CLOSING: Final = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("script", "style", "template", "noscript", "svg")
}
_TAG = re.compile(r"<[^>]*+>?")
_WORD = re.compile(r"[^\W_]+")
_DIGITS = re.compile(r"\d+")
# What looks random says nothing: hex digits, and letters and digits in turn. `int8x16` and `mp3` are names.
_RANDOM = re.compile(r"[0-9a-f]{8,}|(?:\d+[^\W\d_]+){2,}\d+\w*|(?:[^\W\d_]+\d+){3,}\w*|\d+")
_NO_DIGITS: Final = str.maketrans("", "", "0123456789")
_IMAGE = re.compile(r"<img\s[^<>]{0,2000}?src\s{0,8}=\s{0,8}[\"']?([^\"'\s>?#]{1,2000})", re.IGNORECASE)
# English, German, French, Spanish, Italian, Portuguese and Dutch; other languages' names are seen after a year.
_MONTHS_AND_DAYS: Final = (
    "january february march april may june july august september october november december "
    "jan feb mar apr jun jul aug sep sept oct nov dec "
    "monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thurs fri sat sun st nd rd th am pm "
    "januar februar märz april mai juni juli august september oktober november dezember "
    "montag dienstag mittwoch donnerstag freitag samstag sonntag mo di mi do fr sa so "
    "janvier février mars avril mai juin juillet août septembre octobre novembre décembre "
    "lundi mardi mercredi jeudi vendredi samedi dimanche "
    "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre "
    "lunes martes miércoles jueves viernes sábado domingo "
    "gennaio febbraio marzo aprile maggio giugno luglio settembre ottobre novembre dicembre "
    "lunedì martedì mercoledì giovedì venerdì sabato domenica "
    "janeiro fevereiro março maio junho julho setembro outubro novembro dezembro segunda terça quarta quinta sexta "
    "januari februari maart mei augustus maandag dinsdag woensdag donderdag vrijdag zaterdag zondag"
)
_CALENDAR: Final = frozenset(_MONTHS_AND_DAYS.split())


def content_of(text: str, url: str, links: Sequence[str] = ()) -> tuple[dict[str, None], list[str]]:
    """(runs, images) of a page; time is linear in the text."""
    text = text[:TEXT_CHARS_MAX]
    path, _, query = url.partition("?")
    asked = [query, *(link[len(path) + 1 :] for link in links[:LINKS_MAX] if link.startswith(f"{path}?"))]
    own = {word for word in _WORD.findall(unquote_plus(" ".join([urls.host_of(url), *asked])).lower()) if len(word) > 1}
    own.difference_update([word for word in own if word.isdigit()])
    runs: dict[str, None] = {}
    for piece in _TAG.split(_visible(text))[:RUNS_MAX]:
        if piece and not piece.isspace() and (run := _run_of(piece.lower(), own)):
            runs[run] = None
    return runs, _IMAGE.findall(text)[:IMAGES_MAX]


def _run_of(piece: str, own: set[str]) -> str:
    if len(piece) > LONG_RUN_CHARS and not any(word in piece for word in own):
        return " ".join(piece.translate(_NO_DIGITS).split())
    words = [word for word in _WORD.findall(piece) if word not in _CALENDAR and word not in own]
    if _DIGITS.search(piece):
        words = [_DIGITS.sub("#", word) for word in words if word.isalpha() or not _RANDOM.fullmatch(word)]
    return " ".join(words)


def _visible(text: str) -> str:
    """The markup without scripts, styles, comments and their like."""
    kept = []
    at = 0
    while (found := _HIDDEN.search(text, at)) is not None:
        kept.append(text[at : found.start()])
        name = found[1]
        if name is None:
            end = text.find("-->", found.end())
        else:
            close = _CLOSING[name.lower()].search(text, found.end())
            end = close.start() if close else -1
        if end < 0:
            return "".join(kept)
        at = end
    kept.append(text[at:])
    return "".join(kept)
