"""lease.json: the sign of life of a run's driver, which renews it every second.

Like commits, it only tells a standby when to try a takeover. The start manifest of a newer driver fences the older one.
"""

from __future__ import annotations

from typing import Literal

from forkpoint.checkpoint.format import Format, Record
from forkpoint.checkpoint.manifest import Count, Name

LEASE_MS = 3_000


class Lease(Record, frozen=True, kw_only=True):
    """``renewals``: a counter, so that no host compares its clock with another's. ``ttl_ms``: the maximum time of a live driver
    until its next renewal. ``epoch``: its newest committed epoch. ``successor``: the run to which it hands the job over;
    meanwhile, it commits no further epoch."""

    format_version: Literal[1] = 1
    job: Name
    run: Name
    renewals: Count
    ttl_ms: Count
    epoch: Count
    successor: Name | None = None


LEASE = Format("lease.json", Lease, 1)
