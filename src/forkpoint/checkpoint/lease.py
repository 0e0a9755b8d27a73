"""lease.json: a sign of life of a run's driver, renewed every second while it runs.

It only tells a standby when to try, and so do commits. What keeps an older driver from committing is the start manifest of the
newer one.
"""

from __future__ import annotations

from typing import Literal

from forkpoint.checkpoint.format import Format, Record
from forkpoint.checkpoint.manifest import Count, Name

LEASE_MS = 3_000


class Lease(Record, frozen=True, kw_only=True):
    """``renewals`` counts up; no clock is compared with another host's. ``ttl_ms``: how long a driver that lives may take for the
    next renewal. ``epoch``: the newest one that it has committed. ``successor``: the run that it hands the job over to; it
    commits no further epoch for the moment."""

    format_version: Literal[1] = 1
    job: Name
    run: Name
    renewals: Count
    ttl_ms: Count
    epoch: Count
    successor: Name | None = None


LEASE = Format("lease.json", Lease, 1)
