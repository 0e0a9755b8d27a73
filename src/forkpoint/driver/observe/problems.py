"""The problems of a running job: sentences for people, severities for monitors. Pure.

The driver reports its problems, and all clients show the same words. If the driver does not answer, `protocol.registry` derives
the problems from the run's record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from forkpoint.driver.commit.measurements import Hold, Skew, is_time
from forkpoint.driver.observe.journal import KEPT_FAILURES
from forkpoint.protocol.messages import EpochEntry, FailureEntry, Phase, Problem, Severity
from forkpoint.wording import about, number, one_line, size

if TYPE_CHECKING:
    from forkpoint.contract.source import Backlog
    from forkpoint.driver.observe.metrics import BacklogSample
    from forkpoint.runtime.exchange.control import Memory

LOOP_MS, LOOP_RESTARTS = 600_000, 3
LONG_EPOCH_MS, LONG_EPOCH_TIMES = 60_000, 10
SLOW_EPOCH_MS, SLOW_EPOCH_TIMES, SLOW_EPOCHS = 5_000, 5, 3
BEHIND_MS = 60_000
HELD_SHARE = 30  # divides the silence limit of a source: 10 s for 5 min
GROWTH_MS, GROWTH_TIMES = 240_000, 2
GROWTH_LEAST = {"elements": 1_000, "bytes": 1_000_000}
_RECENT_EPOCHS = 20
_WORK = {"computed": "compute", "written": "write", "committed": "commit", "published": "publish"}


@dataclass(frozen=True)
class SourceNow:
    """A source that has not ended. ``rare``: it is only broadcast, like rules, which may not change for days. ``read_ms``: when
    it last read elements in this run. ``trouble``: the fault because of which it has no input."""

    uid: str
    bounded: bool = False
    rare: bool = False
    read_ms: int | None = None
    trouble: str | None = None
    backlog: Backlog | None = None
    backlogs: Sequence[BacklogSample] = ()


@dataclass(frozen=True)
class TimedOperator:
    """An operator with event-time timers, which waits for watermarks. ``origins``: the uids of the operators that generate its
    watermark. ``sources``: the uids of the sources upstream of these."""

    uid: str
    origins: Sequence[str]
    sources: Sequence[str]


@dataclass(frozen=True)
class Situation:
    """The known state of a run that answers. Times are ms since 1970. ``since_ms``: its last (re)start. ``holds`` and
    ``idleness_ms``: by the uid of the watermark's origin. ``skews``: by operator. ``short_memory``: of a process that took too
    much. ``epoch_ms``: how long the running epoch has been computing; ``doing``: its activity, in words. ``behind_ms``: by sink,
    the start of back pressure. ``silence_ms``: how long a source or split may have no element."""

    state: str
    now_ms: int
    silence_ms: int
    since_ms: int | None = None
    sources: Sequence[SourceNow] = ()
    operators: Sequence[TimedOperator] = ()
    holds: Mapping[str, Hold] = field(default_factory=dict)
    idleness_ms: Mapping[str, int] = field(default_factory=dict)
    skews: Mapping[str, Skew] = field(default_factory=dict)
    short_memory: Memory | None = None
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
    """The problems of a job whose driver answers, the most severe first."""
    found = list(_restarts(now))
    if now.state == "running":
        for check in _CHECKS:
            found += check(now)
    return sorted(found, key=lambda problem: problem.severity)


def silences(now: Situation) -> dict[str, int]:
    """How many ms each unbounded source of a running job, except rare sources, has read no element, at most since the last
    (re)start; by uid."""
    if now.state != "running" or now.since_ms is None:
        return {}
    since_ms = now.since_ms
    sources = (source for source in now.sources if not source.bounded and not source.rare)
    return {source.uid: max(0, now.now_ms - max(source.read_ms or 0, since_ms)) for source in sources}


def waits_to_publish(unpublished: Mapping[str, int], problem: str) -> str:
    return f"waits to publish {max(unpublished.values(), default=0)} epochs: {problem}"


def waits_for(uid: str, trouble: str) -> str:
    return f"waits for source {uid!r}: {trouble}"


def _restarts(now: Situation) -> Iterator[Problem]:
    """Failed attempts within one outage have the same number: they count as one restart."""
    recent = [failure for failure in now.failures if failure.restarts is not None and now.now_ms - failure.at_ms < LOOP_MS]
    count, error = len({failure.restarts for failure in recent}), recent[-1].failure if recent else now.failure
    why = one_line(error or "the reason is not known")
    if count >= LOOP_RESTARTS:
        times = f"{count} times or more" if len(recent) >= KEPT_FAILURES else f"{count} times"
        yield Problem("critical", "restart-loop", None, f"restarted {times} in the last {about(LOOP_MS)}: {why}")
    elif now.state == "restarting":
        suffix = "th" if now.restarts % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(now.restarts % 10, "th")
        yield Problem("warning", "restarting", None, f"restarting, for the {now.restarts}{suffix} time: {why}")


def _input(now: Situation) -> Iterator[Problem]:
    for source in now.sources:
        if source.trouble is not None:
            yield Problem("critical", "input", source.uid, waits_for(source.uid, source.trouble))


def _silent_sources(now: Situation) -> Iterator[Problem]:
    """A job that waits for its sinks, or for the end of an epoch, does not read either, but that is another problem."""
    if now.behind_ms or now.publishing_problem is not None or now.epoch_ms >= min(now.silence_ms, LONG_EPOCH_MS):
        return
    for source in now.sources:
        passed_ms = _silence(now, source.read_ms)
        if passed_ms is None or source.bounded or source.rare or source.trouble is not None:
            continue
        waiting = source.backlog is not None and source.backlog.amount > 0
        left = _amount(source.backlog.amount, source.backlog.unit) if source.backlog is not None else ""
        but = f", although {left} are waiting" if waiting else ""
        text = f"no data: source {source.uid!r} has read nothing for {about(passed_ms)}{but}"
        yield Problem("warning", "no-data", source.uid, text)


def _held_watermarks(now: Situation) -> Iterator[Problem]:
    """Splits without elements that hold back the watermarks of operators whose other splits advance."""
    waiting: dict[tuple[str, str | None], list[str]] = {}
    details: dict[tuple[str, str | None], tuple[Hold, tuple[str, str, int]]] = {}
    read_ms = {source.uid: source.read_ms for source in now.sources}
    for operator in now.operators:
        active = [at_ms for uid in operator.sources if (at_ms := read_ms.get(uid)) is not None]
        held = [(uid, hold) for uid in operator.origins if (hold := now.holds.get(uid)) is not None]
        if not held or not active or now.now_ms - max(active) >= now.silence_ms:
            continue  # no watermark is held back, or no split advances
        uid, hold = min(held, key=lambda pair: (pair[1].watermark_ms, pair[0]))
        first = max(((furthest[1], uid, furthest[0]) for uid, furthest in _furthest(held)), default=None)
        if first is None or not _is_stalled(now, hold, first[0]):
            continue
        waiting.setdefault((uid, hold.split), []).append(operator.uid)
        details[uid, hold.split] = hold, (first[1], first[2], first[0])
    for (uid, split), operators in waiting.items():
        yield Problem("warning", "watermark", uid, _held(now, uid, *details[uid, split], operators))


def _furthest(held: Sequence[tuple[str, Hold]]) -> Iterator[tuple[str, tuple[str, int]]]:
    for uid, hold in held:
        if hold.furthest is not None:
            yield uid, hold.furthest
        elif hold.split is not None and is_time(hold.watermark_ms):
            yield uid, (hold.split, hold.watermark_ms)


def _is_stalled(now: Situation, hold: Hold, furthest_ms: int) -> bool:
    """Whether the split has been without elements for so long that other splits are ahead by about that time."""
    after_ms = _held_after(now)
    if hold.watermark_ms >= furthest_ms or _silence(now, hold.active_ms, after_ms) is None:
        return False
    return not is_time(hold.watermark_ms) or furthest_ms - hold.watermark_ms >= after_ms // 2


def _held_after(now: Situation) -> int:
    """How long a split may be silent while others wait for it: only seconds, because timers wait and no other sign shows it."""
    return max(1, now.silence_ms // HELD_SHARE)


def _held(now: Situation, uid: str, hold: Hold, furthest: tuple[str, str, int], operators: Sequence[str]) -> str:
    names, several = " and ".join(map(repr, operators)), len(operators) > 1
    slowest = f"source {uid!r}" if hold.split is None else f"split {hold.split!r} of {uid!r}"
    others = f" (and {hold.others} more)" if hold.others else ""
    if hold.empty or not is_time(hold.watermark_ms):
        which = "which has had no element yet"
    else:
        there = f"{furthest[1]!r}" if furthest[0] == uid else f"{furthest[1]!r} of {furthest[0]!r}"
        silent_ms = _silence(now, hold.active_ms, _held_after(now)) or 0
        which = f"which is {about(furthest[2] - hold.watermark_ms)} behind {there} and has had no element for {about(silent_ms)}"
    after_ms = now.idleness_ms.get(uid)
    cure = "with_idleness(...) lets it advance" if after_ms is None else f"it advances after {about(after_ms)} without one"
    whose = f"the watermarks of {names} wait" if several else f"the watermark of {names} waits"
    return f"{whose} for {slowest}{others}, {which}; {cure}"


def _publishing(now: Situation) -> Iterator[Problem]:
    if now.publishing_problem is not None:
        severity: Severity = "critical" if now.behind_ms else "warning"
        yield Problem(severity, "output", None, waits_to_publish(now.unpublished, now.publishing_problem))
        return
    commits = [epoch.phases["committed"] for epoch in now.epochs[-_RECENT_EPOCHS:] if "committed" in epoch.phases]
    if len(commits) <= SLOW_EPOCHS:
        return
    every_ms = round(median(b - a for a, b in pairwise(commits)))
    if every_ms < max(SLOW_EPOCH_MS, SLOW_EPOCH_TIMES * (now.interval_ms or 0)):
        return  # epochs follow each other as fast as the sink allows
    for uid, since_ms in now.behind_ms.items():
        if now.now_ms - since_ms >= BEHIND_MS:
            much = f"{now.unpublished.get(uid, 0)} epochs wait to be published, and the job commits one every {about(every_ms)}"
            yield Problem("warning", "sink-behind", uid, f"sink {uid!r} does not keep up: {much}")


def _epochs(now: Situation) -> Iterator[Problem]:
    phases = [epoch.phases for epoch in now.epochs[-_RECENT_EPOCHS:]]
    took = [each["published"] - each["planned"] for each in phases if "published" in each and "planned" in each]
    usual_ms = round(median(took)) if took else 0
    if now.epoch_ms >= max(LONG_EPOCH_MS, LONG_EPOCH_TIMES * usual_ms):
        doing = now.doing or f"an epoch, for {about(now.epoch_ms)}"
        before = f"; earlier epochs took {about(usual_ms)}" if took else ""
        yield Problem("warning", "long-epoch", None, f"{doing}{before}")
    interval_ms = now.interval_ms or 0
    if interval_ms and len(took) >= SLOW_EPOCHS and usual_ms >= max(SLOW_EPOCH_MS, SLOW_EPOCH_TIMES * interval_ms):
        work, work_ms = _slowest_work(phases)
        text = f"epochs take {about(usual_ms)}, their interval is {about(interval_ms)}: {about(work_ms)} to {work}"
        yield Problem("warning", "slow-epochs", None, text)


def _slowest_work(epochs: Sequence[Mapping[Phase, int]]) -> tuple[str, int]:
    """The phase with the largest share of time, and its usual duration. ``epochs``: the times at which they reached phases."""
    times: dict[str, list[int]] = {}
    for phases in epochs:
        for (_, began_ms), (phase, at_ms) in pairwise(sorted(phases.items(), key=lambda item: item[1])):
            times.setdefault(_WORK.get(phase, phase), []).append(at_ms - began_ms)
    work = max(times, key=lambda name: sum(times[name]))
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


def _skews(now: Situation) -> Iterator[Problem]:
    """Uneven work is a problem only where the job does not keep up."""
    if not now.skews or not any(
        problem.kind in ("slow-epochs", "backlog") for check in (_epochs, _backlogs) for problem in check(now)
    ):
        return
    for uid, skew in now.skews.items():
        text = f"subtask {skew.subtask} of operator {uid!r} gets {skew.share:.0%} of the elements, and the other "
        text += "waits" if skew.subtasks == 2 else f"{skew.subtasks - 1} wait"
        if skew.key is not None:
            text += f" for it; about {skew.share * skew.key[1]:.0%} of the elements have the key {skew.key[0]}"
        else:
            text += " for it"
        yield Problem("warning", "skew", uid, text)


def _memory(now: Situation) -> Iterator[Problem]:
    if (memory := now.short_memory) is not None:
        text = (
            f"process {memory.process} takes {memory.peak >> 20} of its {memory.limit >> 20} MiB, however few elements an epoch "
        )
        yield Problem("warning", "memory", None, text + "reads: raise --memory, or hold less in functions")


def _amount(amount: int, unit: str) -> str:
    return size(amount) if unit == "bytes" else f"{number(amount)} elements"


def _silence(now: Situation, active_ms: int | None, after_ms: int | None = None) -> int | None:
    """How long there has been no element, if that is too long. A run that has just (re)started may still find elements."""
    after_ms = now.silence_ms if after_ms is None else after_ms
    if now.since_ms is None or now.now_ms - max(active_ms or 0, now.since_ms) < after_ms:
        return None
    return now.now_ms - (now.since_ms if active_ms is None else active_ms)


_CHECKS: Sequence[Callable[[Situation], Iterator[Problem]]] = (
    _input,
    _publishing,
    _silent_sources,
    _held_watermarks,
    _epochs,
    _backlogs,
    _skews,
    _memory,
)
