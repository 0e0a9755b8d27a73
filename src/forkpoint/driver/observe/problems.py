"""What is wrong with a running job, in plain sentences for people, and with a severity for monitors. Pure.

The driver answers with its problems, and whoever asks shows the same words. `protocol.registry` tells from a run's record what
is wrong if its driver does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from forkpoint.driver.commit.measurements import Hold, is_time
from forkpoint.driver.observe.journal import KEPT_FAILURES
from forkpoint.protocol.messages import EpochEntry, FailureEntry, Problem, Severity
from forkpoint.wording import about, number, one_line, size

if TYPE_CHECKING:
    from forkpoint.contract.source import Backlog
    from forkpoint.driver.observe.metrics import BacklogThen

LOOP_MS, LOOP_RESTARTS = 600_000, 3
LONG_EPOCH_MS, LONG_EPOCH_TIMES = 60_000, 10
SLOW_EPOCH_MS, SLOW_EPOCH_TIMES, SLOW_EPOCHS = 5_000, 5, 3
BEHIND_MS = 60_000
HELD_SHARE = 30  # of the silence that a source may have: 10 s of 5 min
GROWTH_MS, GROWTH_TIMES = 240_000, 2
GROWTH_LEAST = {"elements": 1_000, "bytes": 1_000_000}
_LATELY = 20  # epochs
_WORK = {"computed": "compute", "written": "write", "committed": "commit", "published": "publish"}


@dataclass(frozen=True)
class SourceNow:
    """A source that has not ended. ``rare``: it is only broadcast, as rules are, which may not change for days. ``read_ms``: when
    it last read elements in this run. ``trouble``: the fault for which it has nothing to read."""

    uid: str
    bounded: bool = False
    rare: bool = False
    read_ms: int | None = None
    trouble: str | None = None
    backlog: Backlog | None = None
    backlogs: Sequence[BacklogThen] = ()


@dataclass(frozen=True)
class TimedOperator:
    """An operator that waits for watermarks: it has timers in event time. ``origins``: the uids of what generates its watermark.
    ``sources``: those upstream of these."""

    uid: str
    origins: Sequence[str]
    sources: Sequence[str]


@dataclass(frozen=True)
class Situation:
    """What is known of a run that answers. Times are ms since 1970. ``since_ms``: when it last started or restarted. ``holds``
    and ``idleness_ms``: by the uid of what generates watermarks. ``epoch_ms``: how long the epoch under way has been computing;
    ``doing``: what it is doing, in words. ``behind_ms``: since when each sink has had so much to publish that the job waits.
    ``silence_ms``: how long a source or split may have no element."""

    state: str
    now_ms: int
    silence_ms: int
    since_ms: int | None = None
    sources: Sequence[SourceNow] = ()
    operators: Sequence[TimedOperator] = ()
    holds: Mapping[str, Hold] = field(default_factory=dict)
    idleness_ms: Mapping[str, int] = field(default_factory=dict)
    restarts: int = 0
    failure: str | None = None
    failures: Sequence[FailureEntry] = ()
    interval_ms: int | None = None
    epochs: Sequence[EpochEntry] = ()
    epoch_ms: int = 0
    doing: str | None = None
    unpublished: Mapping[str, int] = field(default_factory=dict)
    publishing_problem: str | None = None
    behind_ms: Mapping[str, int] = field(default_factory=dict)


def problems(now: Situation) -> list[Problem]:
    """What is wrong with a job whose driver answers, the worst first; nothing if all is well, or nothing is known yet."""
    found = list(_restarts(now))
    if now.state == "running":
        for look in _LOOKS:
            found += look(now)
    return sorted(found, key=lambda problem: problem.severity)


def silences(now: Situation) -> dict[str, int]:
    """For how many ms unbounded sources of a running job, except rare ones, have read nothing since it has (re)started at the
    earliest; by uid."""
    if now.state != "running" or now.since_ms is None:
        return {}
    since_ms = now.since_ms
    return {
        each.uid: max(0, now.now_ms - max(each.read_ms or 0, since_ms))
        for each in now.sources
        if not each.bounded and not each.rare
    }


def waits_to_publish(unpublished: Mapping[str, int], problem: str) -> str:
    return f"waits to publish {max(unpublished.values(), default=0)} epochs: {problem}"


def waits_for(uid: str, trouble: str) -> str:
    return f"waits for source {uid!r}: {trouble}"


def _restarts(now: Situation) -> Iterator[Problem]:
    """Attempts that fail within one outage have one number, as they are one restart."""
    lately = [each for each in now.failures if each.restarts is not None and now.now_ms - each.at_ms < LOOP_MS]
    count, error = len({each.restarts for each in lately}), lately[-1].failure if lately else now.failure
    why = one_line(error or "the reason is not known")
    if count >= LOOP_RESTARTS:
        times = f"{count} times or more" if len(lately) >= KEPT_FAILURES else f"{count} times"
        yield Problem("critical", "restart-loop", None, f"restarted {times} in the last {about(LOOP_MS)}: {why}")
    elif now.state == "restarting":
        yield Problem("warning", "restarting", None, f"restarting, for the {_ordinal(now.restarts)} time: {why}")


def _input(now: Situation) -> Iterator[Problem]:
    for source in now.sources:
        if source.trouble is not None:
            yield Problem("critical", "input", source.uid, waits_for(source.uid, source.trouble))


def _silent_sources(now: Situation) -> Iterator[Problem]:
    """A job that waits for its sinks, or for the end of an epoch, reads nothing either: that is another problem."""
    if now.behind_ms or now.publishing_problem is not None or now.epoch_ms >= min(now.silence_ms, LONG_EPOCH_MS):
        return
    for source in now.sources:
        passed_ms = _silence(now, source.read_ms)
        if passed_ms is None or source.bounded or source.rare or source.trouble is not None:
            continue
        waiting = source.backlog is not None and source.backlog.amount > 0
        left = _amount(source.backlog.amount, source.backlog.unit) if source.backlog is not None else ""
        but = f", although {left} wait there" if waiting else ""
        text = f"no data: source {source.uid!r} has read nothing for {about(passed_ms)}{but}"
        yield Problem("warning", "no-data", source.uid, text)


def _held_watermarks(now: Situation) -> Iterator[Problem]:
    """Splits without elements that hold back the watermarks of operators whose other splits go on."""
    waiting: dict[tuple[str, str | None], list[str]] = {}
    told: dict[tuple[str, str | None], tuple[Hold, tuple[str, str, int]]] = {}
    read_ms = {source.uid: source.read_ms for source in now.sources}
    for operator in now.operators:
        active = [at_ms for uid in operator.sources if (at_ms := read_ms.get(uid)) is not None]
        held = [(uid, hold) for uid in operator.origins if (hold := now.holds.get(uid)) is not None]
        if not held or not active or now.now_ms - max(active) >= now.silence_ms:
            continue  # nothing is held, or nothing goes on
        uid, hold = min(held, key=lambda each: (each[1].watermark_ms, each[0]))
        first = max(((furthest[1], uid, furthest[0]) for uid, furthest in _furthest(held)), default=None)
        if first is None or not _stands(now, hold, first[0]):
            continue
        waiting.setdefault((uid, hold.split), []).append(operator.uid)
        told[uid, hold.split] = hold, (first[1], first[2], first[0])
    for (uid, split), operators in waiting.items():
        yield Problem("warning", "watermark", uid, _held(now, uid, *told[uid, split], operators))


def _furthest(held: Sequence[tuple[str, Hold]]) -> Iterator[tuple[str, tuple[str, int]]]:
    for uid, hold in held:
        if hold.furthest is not None:
            yield uid, hold.furthest
        elif hold.split is not None and is_time(hold.watermark_ms):
            yield uid, (hold.split, hold.watermark_ms)


def _stands(now: Situation, hold: Hold, furthest_ms: int) -> bool:
    """Whether the split has had no element for so long that others are ahead by about as much."""
    after_ms = _held_after(now)
    if hold.watermark_ms >= furthest_ms or _silence(now, hold.active_ms, after_ms) is None:
        return False
    return not is_time(hold.watermark_ms) or furthest_ms - hold.watermark_ms >= after_ms // 2


def _held_after(now: Situation) -> int:
    """How long a split that others wait for may be silent: seconds, as timers wait meanwhile, and nothing else looks wrong."""
    return max(1, now.silence_ms // HELD_SHARE)


def _held(now: Situation, uid: str, hold: Hold, furthest: tuple[str, str, int], operators: Sequence[str]) -> str:
    names, several = " and ".join(map(repr, operators)), len(operators) > 1
    what = f"source {uid!r}" if hold.split is None else f"split {hold.split!r} of {uid!r}"
    others = f" (and {hold.others} more)" if hold.others else ""
    if hold.empty or not is_time(hold.watermark_ms):
        which = "which has had no element yet"
    else:
        there = f"{furthest[1]!r}" if furthest[0] == uid else f"{furthest[1]!r} of {furthest[0]!r}"
        silent_ms = _silence(now, hold.active_ms, _held_after(now)) or 0
        which = f"which is {about(furthest[2] - hold.watermark_ms)} behind {there} and has had no element for {about(silent_ms)}"
    after_ms = now.idleness_ms.get(uid)
    cure = "with_idleness(...) lets it go on" if after_ms is None else f"it goes on after {about(after_ms)} without one"
    whose = f"the watermarks of {names} wait" if several else f"the watermark of {names} waits"
    return f"{whose} for {what}{others}, {which}; {cure}"


def _publishing(now: Situation) -> Iterator[Problem]:
    if now.publishing_problem is not None:
        severity: Severity = "critical" if now.behind_ms else "warning"
        yield Problem(severity, "output", None, waits_to_publish(now.unpublished, now.publishing_problem))
        return
    every_ms = _commits_every(now)
    if every_ms is None or every_ms < max(SLOW_EPOCH_MS, SLOW_EPOCH_TIMES * (now.interval_ms or 0)):
        return  # an epoch soon follows another one, as fast as the sink allows
    for uid, since_ms in now.behind_ms.items():
        if now.now_ms - since_ms >= BEHIND_MS:
            much = f"{now.unpublished.get(uid, 0)} epochs wait to be published, and the job commits one each {about(every_ms)}"
            yield Problem("warning", "sink-behind", uid, f"sink {uid!r} does not keep up: {much}")


def _epochs(now: Situation) -> Iterator[Problem]:
    took = [_took(each) for each in now.epochs[-_LATELY:] if "published" in each.phases and "planned" in each.phases]
    usual_ms = round(median(took)) if took else 0
    if now.epoch_ms >= max(LONG_EPOCH_MS, LONG_EPOCH_TIMES * usual_ms):
        doing = now.doing or f"an epoch, for {about(now.epoch_ms)}"
        before = f"; those before it took {about(usual_ms)}" if took else ""
        yield Problem("warning", "long-epoch", None, f"{doing}{before}")
    interval_ms = now.interval_ms or 0
    if interval_ms and len(took) >= SLOW_EPOCHS and usual_ms >= max(SLOW_EPOCH_MS, SLOW_EPOCH_TIMES * interval_ms):
        work, work_ms = _slowest_work(now.epochs[-_LATELY:])
        text = f"epochs take {about(usual_ms)}, their interval is {about(interval_ms)}: {about(work_ms)} to {work}"
        yield Problem("warning", "slow-epochs", None, text)


def _commits_every(now: Situation) -> int | None:
    """The usual time between the last commits; None if that is not known yet."""
    commits = [each.phases["committed"] for each in now.epochs[-_LATELY:] if "committed" in each.phases]
    return round(median(b - a for a, b in pairwise(commits))) if len(commits) > SLOW_EPOCHS else None


def _took(epoch: EpochEntry) -> int:
    return epoch.phases["published"] - epoch.phases["planned"]


def _slowest_work(epochs: Sequence[EpochEntry]) -> tuple[str, int]:
    """What most of the time of epochs goes to, and how long that usually takes."""
    times: dict[str, list[int]] = {}
    for epoch in epochs:
        reached = sorted(epoch.phases.items(), key=lambda each: each[1])
        for (_, began_ms), (phase, at_ms) in pairwise(reached):
            times.setdefault(_WORK.get(phase, phase), []).append(at_ms - began_ms)
    work = max(times, key=lambda each: sum(times[each]))
    return work, round(median(times[work]))


def _backlogs(now: Situation) -> Iterator[Problem]:
    for source in now.sources:
        known = source.backlogs
        if source.bounded or source.backlog is None or not known:
            continue
        first, last, unit = known[0], known[-1], source.backlog.unit
        passed_ms, grown = last.at_ms - first.at_ms, last.amount - first.amount
        rising = sum(a.amount < b.amount for a, b in pairwise(known))
        enough = grown >= GROWTH_LEAST[unit] and last.amount >= GROWTH_TIMES * first.amount
        if passed_ms >= GROWTH_MS and enough and rising >= 0.7 * (len(known) - 1):
            start, end = _amount(first.amount, unit), _amount(last.amount, unit)
            text = f"source {source.uid!r} does not keep up: its backlog has grown from {start} to {end} in {about(passed_ms)}"
            yield Problem("warning", "backlog", source.uid, text)


def _amount(amount: int, unit: str) -> str:
    return size(amount) if unit == "bytes" else f"{number(amount)} elements"


def _silence(now: Situation, active_ms: int | None, after_ms: int | None = None) -> int | None:
    """For how long there has been nothing, if that is too long. A run that has just (re)started may still find something."""
    after_ms = now.silence_ms if after_ms is None else after_ms
    if now.since_ms is None or now.now_ms - max(active_ms or 0, now.since_ms) < after_ms:
        return None
    return now.now_ms - (now.since_ms if active_ms is None else active_ms)


def _ordinal(count: int) -> str:
    ending = "th" if count % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
    return f"{count}{ending}"


_LOOKS: Sequence[Callable[[Situation], Iterator[Problem]]] = (
    _input,
    _publishing,
    _silent_sources,
    _held_watermarks,
    _epochs,
    _backlogs,
)
