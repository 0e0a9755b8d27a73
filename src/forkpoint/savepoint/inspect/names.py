"""Errors for unknown operators, states, sources and time domains, with suggestions. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from forkpoint.errors import StateNotFound
from forkpoint.runtime.event_time.timers import EVENT_TIMERS, PROCESSING_TIMERS

TIMERS = {"event": EVENT_TIMERS, "processing": PROCESSING_TIMERS}


def no_domain(domain: str) -> str:
    return f"timers have a time domain: {domain!r} is neither 'event' nor 'processing'"


def no_operator(uid: str, known: Iterable[str], where: str) -> StateNotFound:
    return StateNotFound(f"{where} has no operator {uid!r}{_others(uid, known, 'it has')}")


def no_state(uid: str, name: str, known: Iterable[str], where: str) -> StateNotFound:
    return StateNotFound(f"{where}: operator {uid!r} has no state {name!r}{_others(name, known, 'it has')}")


def no_source(uid: str, known: Iterable[str], where: str) -> StateNotFound:
    return StateNotFound(f"{where} has no position of a source {uid!r}{_others(uid, known, 'it has those of')}")


def _others(name: str, known: Iterable[str], it_has: str) -> str:
    known = sorted(known)
    close = get_close_matches(name, known, n=3)
    meant = f"; did you mean {' or '.join(map(repr, close))}?" if close else "; "
    listed = ", ".join(map(repr, known)) or "none"
    return f"{meant}{' I' if close else 'i'}{it_has[1:]} {listed}"
