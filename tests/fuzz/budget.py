"""How long each property is tried: seconds and always the same examples in the suite, new ones under `python -m tests.fuzz`."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings

SHORT = 150
LONG = 500

long = False
"""Set by `python -m tests.fuzz` before it imports the properties."""


def tried(*strategies: Any, share: float = 1.0, **named: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`given`, with as many examples as the budget has; `share` is for properties that cost more or less than others."""
    chosen = settings(
        max_examples=max(1, round((LONG if long else SHORT) * share)),
        derandomize=not long,
        database=None,
        deadline=None,  # a busy machine is no counter-example; where time is the claim, the property measures it
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        return chosen(given(*strategies, **named)(function))

    return decorate
