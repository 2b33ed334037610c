"""The two clocks: boot time for durations and authority, wall time for records and logs.

CLOCK_BOOTTIME counts on through suspend, so a machine that slept knows that its authority ran out. Wall time is
looked at, beside logs and records, only to notice a jump forward: see `agreement.has_authority`.
"""

import time


def boot_s() -> float:
    """Seconds since boot, suspend included; comparable only on one machine."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wall_ms() -> int:
    """Milliseconds since 1970 by this machine's wall clock; for logs, never for a delay."""
    return time.time_ns() // 1_000_000
