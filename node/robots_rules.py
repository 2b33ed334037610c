"""Which rule of a robots.txt decides a path: the one of most octets, allow before disallow; pure, and in small steps.

Source: RFC 9309 sections 2.2.2 and 2.2.3. No regular expression is made of a pattern, so none runs away; and work that
a hostile file makes long is a generator that stops after each slice, so that a loop need not wait for all of it.
"""

import itertools
import re
from collections.abc import Generator, Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")
K = TypeVar("K")
Steps = Generator[None, None, T]
"""Work in slices of well under a millisecond; its return value is the result."""

SLICE_CHARS: Final = 3_000  # of lines, read or taken in before a pause
LINE_COST: Final = 60  # what a line costs besides its characters, in characters
SLICE_OCTETS: Final = 400_000  # comparisons of octets, at worst, before a pause: 0.3 ms
_SLICE_RULES: Final = 256  # rules sorted before a pause
_ROW_RULES: Final = 64  # patterns that are sieved at once
_ROW_OCTETS: Final = 1_024  # and no more octets in them, unless one pattern alone has more
_RULE_OCTETS: Final = 200  # what looking at one pattern costs besides its octets, in octets

# One spelling for all: these stand for themselves, and their escapes are undone. `/` and `?` too in a query.
_SAME: Final = r"A-Za-z0-9._~!&'()+,;=:@\[\]\-"
_PLAIN: Final = re.compile(f"[{_SAME}/?]*")
_ODD: Final = re.compile(f"%[0-9A-Fa-f]{{2}}|%|[^{_SAME}/?%]+")
_ODD_IN_PATTERN: Final = re.compile(f"%[0-9A-Fa-f]{{2}}|%|[^{_SAME}/?*%]+")
_ABSOLUTE: Final = re.compile("https?://", re.IGNORECASE)
_INDEX: Final = ("/index.html", "/index.htm")
_IN_PATH: Final = re.compile(f"[{_SAME}]")
_IN_QUERY: Final = re.compile(f"[{_SAME}/?]")


class Rule(NamedTuple):
    """One allow or disallow line, its pattern in the normal spelling."""

    octets: int
    allow: bool
    line: int
    """Counted from 1."""
    pieces: tuple[str, ...]
    """What stands between the stars."""
    anchored: bool
    """It ends in `$`."""

    def beats(self, other: "Rule | None") -> bool:
        return other is None or (self.octets, self.allow) > (other.octets, other.allow)

    def matches(self, path: str) -> bool:
        """Leftmost places are enough: whatever a star could skip, the next one still can."""
        if not path.startswith(self.pieces[0]):
            return False
        at = len(self.pieces[0])
        for piece in self.pieces[1:-1] if self.anchored else self.pieces[1:]:
            at = path.find(piece, at)
            if at < 0:
                return False
            at += len(piece)
        return not self.anchored or (len(path) - at >= len(self.pieces[-1]) and path.endswith(self.pieces[-1]))


class _Row(NamedTuple):
    """Some patterns with stars, the longest first; each with its longest piece, which every matching path holds."""

    needles: list[str]
    rules: list[Rule]


class Matcher:
    """The rules of one group, once `filling` is through."""

    __slots__ = ("_exact", "_lengths", "_prefixes", "_rows", "size")

    def __init__(self) -> None:
        self._exact: dict[str, Rule] = {}
        self._prefixes: dict[str, Rule] = {}
        self._lengths: list[int] = []
        self._rows: list[_Row] = []
        self.size = 0
        """How many rules there are."""

    @property
    def slow(self) -> bool:
        """So many patterns with stars that a verdict is worth remembering, and worth taking in steps."""
        return len(self._rows) > 2

    def deciding(self, path: str) -> Steps[Rule | None]:
        """The rule that decides a path in its normal spelling (`normal`); None: no rule matches."""
        best = self._exact.get(path)
        room = len(path)
        for length in self._lengths:  # all of them: a shorter one may have more octets, with stars at its end
            if length > room:
                break
            prefix = self._prefixes.get(path[:length])
            if prefix is not None and prefix.beats(best):
                best = prefix
        spent = 0
        for row in self._rows:
            if not row.rules[0].beats(best):
                break
            spent += _ROW_OCTETS * room + _RULE_OCTETS * len(row.rules)
            if spent > SLICE_OCTETS:
                yield
                spent = 0
            for at in [at for at, needle in enumerate(row.needles) if needle in path]:
                rule = row.rules[at]
                if not rule.beats(best):
                    return best
                if rule.matches(path):
                    return rule
        return best

    def filling(self, lines: Iterable[tuple[int, bool, str]]) -> Steps[None]:
        """Take in (line number, allow, pattern as written); of equal patterns the first allow stays, else the first."""
        wild: dict[tuple[tuple[str, ...], bool], Rule] = {}
        spent = 0
        for number, allow, written in lines:
            spent += LINE_COST + len(written)
            if spent > SLICE_CHARS:
                yield
                spent = 0
            for rule in _readings(number, written, allow=allow):
                if len(rule.pieces) > 1:
                    _keep(wild, (rule.pieces, rule.anchored), rule)
                else:
                    _keep(self._exact if rule.anchored else self._prefixes, rule.pieces[0], rule)
        self._lengths = sorted({len(prefix) for prefix in self._prefixes})
        self.size = len(wild) + len(self._prefixes) + len(self._exact)
        by_rank: dict[tuple[int, bool], list[Rule]] = {}
        for count, rule in enumerate(wild.values(), start=1):
            if count % _SLICE_RULES == 0:
                yield
            by_rank.setdefault((rule.octets, rule.allow), []).append(rule)
        yield from self._fill_rows(by_rank[rank] for rank in sorted(by_rank, reverse=True))

    def _fill_rows(self, ranks: Iterable[list[Rule]]) -> Steps[None]:
        """The longest first, allow before disallow."""
        octets = _ROW_OCTETS
        spent = 0
        for rule in itertools.chain.from_iterable(ranks):
            spent += LINE_COST + rule.octets
            if spent > SLICE_CHARS:
                yield
                spent = 0
            if octets + rule.octets > _ROW_OCTETS or len(self._rows[-1].rules) >= _ROW_RULES:
                self._rows.append(_Row([], []))
                octets = 0
            self._rows[-1].needles.append(max(rule.pieces, key=len))
            self._rows[-1].rules.append(rule)
            octets += rule.octets


def _readings(number: int, written: str, *, allow: bool) -> Iterator[Rule]:
    """What a pattern says; where Google's parser and Protego read more into it than the RFC does, that too."""
    if _ABSOLUTE.match(written):
        written = f"/{written}"
    if not written.startswith(("/", "*")):
        return  # no path begins like that
    anchored = written.endswith("$")
    pattern = normal(written.removesuffix("$"), pattern=True)
    yield _rule(number, pattern, allow=allow, anchored=anchored)
    if anchored:  # meant as a character, perhaps
        yield _rule(number, f"{pattern}%24", allow=allow, anchored=False)
    elif allow and pattern.endswith(_INDEX):
        yield _rule(number, pattern[: pattern.rindex("/") + 1], allow=True, anchored=True)


def _rule(number: int, pattern: str, *, allow: bool, anchored: bool) -> Rule:
    """Stars at the end match nothing more, and two in a row what one does; all count as octets."""
    first, *others = (pattern if anchored else pattern.rstrip("*")).split("*")
    pieces = (first, *(other for other in others[:-1] if other), *others[-1:])
    return Rule(len(pattern) + anchored, allow, number, pieces, anchored)


def _keep(known: dict[K, Rule], key: K, rule: Rule) -> None:
    if rule.beats(known.get(key)):
        known[key] = rule


def normal(text: str, *, pattern: bool = False) -> str:
    """A path and query, or a pattern, in the one spelling in which they are compared (RFC 9309 2.2.2).

    Escapes of unreserved characters are undone, and so are those of reserved ones, since the RFC has them compare
    equal; but an escaped `/` or `?` in a path stays what it is, and so does `%2A` or `%24`, which is no star and no
    end. All else is escaped, in capitals. In a pattern `*` stays; whoever asks takes a `$` at its end away first.
    """
    if _PLAIN.fullmatch(text):
        return text
    odd = _ODD_IN_PATTERN if pattern else _ODD
    path, mark, query = text.partition("?")
    path = odd.sub(lambda found: _respelt(found[0], _IN_PATH), path)
    return f"{path}{mark}{odd.sub(lambda found: _respelt(found[0], _IN_QUERY), query)}" if mark else path


def _respelt(text: str, same: re.Pattern[str]) -> str:
    if text[0] == "%" and len(text) == 3:
        plain = chr(int(text[1:], 16))
        return plain if same.fullmatch(plain) else text.upper()
    return "%" + text.encode("utf-8", "surrogateescape").hex("%").upper()


def run(steps: Steps[T]) -> T:
    """All steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
