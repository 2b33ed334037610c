"""Whether a process's memory is flat: its longest life early and late, and the slope of all its lives."""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from tests.torture import evidence

FLAT_SHARE, FLAT_MB = 0.10, 8.0
SAMPLES_MIN = 12  # a shorter series says nothing
UNWATCHED_S = 20.0  # without a sample: the process was gone meanwhile
LIFE_S, LIVES_S = 180.0, 300.0  # a life to be judged by its slope, and all of a process's lives together
BEGINS_S = 60.0  # of a life, in which it may grow
SLOPE_MB = 1.0  # a minute


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """One process: its longest life's second quarter against the last, and the slope of all that lasted.

    `flat` is None where both were too short.
    """

    process: str
    minutes: float
    early_mb: float
    late_mb: float
    flat: bool | None
    mb_a_minute: float | None = None
    """Over all lives of three minutes and more; None where they are less than five together."""

    @property
    def store(self) -> bool:
        """Grows with what the crawl finds; the web's log of visits does too."""
        return self.process.startswith(evidence.STORES)

    @property
    def growth_mb(self) -> float:
        return self.late_mb - self.early_mb


def judged(samples: Sequence[evidence.Sample]) -> Iterator[Memory]:
    """One verdict for each process."""
    series: dict[str, list[list[evidence.Sample]]] = defaultdict(list)
    for sample in sorted(samples, key=lambda one: one.boot_s):
        stretches = series[sample.node]
        if not stretches or _fresh(stretches[-1][-1], sample):
            stretches.append([])
        stretches[-1].append(sample)
    for name in sorted(series):
        longest = max(series[name], key=len)
        quarter = len(longest) // 4
        early = statistics.median(one.rss_mb for one in longest[quarter : 2 * quarter] or longest)
        late = statistics.median(one.rss_mb for one in longest[-quarter:] if quarter) if quarter else early
        flat = late - early < max(FLAT_MB, FLAT_SHARE * early) if len(longest) >= SAMPLES_MIN else None
        slope = _slope(series[name])
        if slope is not None:
            flat = flat is not False and slope <= SLOPE_MB
        minutes = (longest[-1].boot_s - longest[0].boot_s) / 60
        yield Memory(process=name, minutes=minutes, early_mb=early, late_mb=late, flat=flat, mb_a_minute=slope)


def _slope(lives: Sequence[Sequence[evidence.Sample]]) -> float | None:
    """MB a minute, one line of best fit through all lives that lasted, each from its own level."""
    over = under = lasted_s = 0.0
    for life in lives:
        if life[-1].boot_s - life[0].boot_s < LIFE_S:
            continue
        lasted_s += life[-1].boot_s - life[0].boot_s
        rest = [one for one in life if one.boot_s - life[0].boot_s >= BEGINS_S]
        mean_s = statistics.fmean(one.boot_s for one in rest)
        mean_mb = statistics.fmean(one.rss_mb for one in rest)
        over += sum((one.boot_s - mean_s) * (one.rss_mb - mean_mb) for one in rest)
        under += sum((one.boot_s - mean_s) ** 2 for one in rest)
    return over / under * 60 if lasted_s >= LIVES_S and under else None


def _fresh(before: evidence.Sample, sample: evidence.Sample) -> bool:
    """Whether this is another process than before."""
    if before.pid is not None and sample.pid is not None:
        return before.pid != sample.pid
    if before.pages is not None and sample.pages is not None and sample.pages < before.pages:
        return True
    return sample.boot_s - before.boot_s > UNWATCHED_S
