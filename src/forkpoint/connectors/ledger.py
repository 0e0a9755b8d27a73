"""Ledgers: what a sink notes in another system, beside its output, about the epochs that it has committed there.

A commit may be repeated, and an older driver may wake up in the middle of one. So a committer looks at the ledger before it
writes. The decisions about what it finds are here; reading and writing it are the sinks' own.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from urllib.parse import quote

from forkpoint.contract.sink import CommitterContext
from forkpoint.errors import JobFailed

REDIS_HASH = "forkpoint:epochs"
CASSANDRA_TABLE = "forkpoint_epochs"
OPENSEARCH_INDEX = "forkpoint-epochs"

_MAX_BYTES = 400  # of an entry's name; an id of OpenSearch's has at most 512
_DIGEST_CHARACTERS = 32


def entry_name(context: CommitterContext, *, of_group: bool) -> str:
    """The name of a sink's entry: ``incarnation/job/uid``, with ``/group`` for the one of a group. A name that is too
    long ends in a digest."""
    parts = [context.incarnation, context.job, context.uid, *([context.group] if of_group else ())]
    name = "/".join(quote(part, safe="") for part in parts)
    if len(name) <= _MAX_BYTES:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{name[: _MAX_BYTES - len(digest) - 1]}-{digest}"


def refuse_put_back(found: int, newest: int, place: str) -> None:
    """Raise JobFailed if a ledger knows an epoch that the job doesn't. ``place``: the ledger's entry, for the message."""
    if found > newest:
        raise JobFailed(
            f"{place} says that epoch {found} was committed, but the job's newest is {newest}. Was the state root put back to an "
            "earlier copy? Output since then would be left out: give the job another name, or delete that entry to write "
            "everything again"
        )


@dataclass(frozen=True)
class Span:
    """The versions of one epoch's rows: row ``i`` of a group has ``first + i``, which is below ``end``.

    Versions are microseconds since 1970 as long as an epoch has fewer rows than microseconds: newer than what others wrote
    before, and than those of all earlier epochs.
    """

    epoch: int
    first: int
    end: int


def next_span(found: Span | None, epoch: int, rows: int, now_us: int) -> Span | None:
    """The span of an epoch of which a group has ``rows`` rows, after what the ledger says; None if a newer epoch has begun, which
    it does only when all of this one was written.

    The first commit of an epoch decides where its versions begin. A repeated one gets the same, and so do other groups; they may
    extend it.
    """
    if found is None or found.epoch < epoch:
        first = now_us if found is None else max(now_us, found.end)
        return Span(epoch, first, first + rows)
    if found.epoch > epoch:
        return None
    return Span(epoch, found.first, max(found.end, found.first + rows))
