"""Formats values for people: numbers, sizes, times, types, and text without hidden characters; and reads durations. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from forkpoint.errors import ConfigError

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_END_MS = 253_402_300_800_000  # the year 10000
_FAR_MS = 2**60  # the minimum and maximum watermarks are beyond it
_UNITS = ("kB", "MB", "GB", "TB")
# Characters that move a terminal's cursor, reorder or hide text, or cannot be encoded: control characters, directional
# marks, line and paragraph separators, lone surrogates.
_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def visible(text: str) -> str:
    """The text with terminal control characters escaped; line ends and tabs stay."""
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def visible_cell(text: str) -> str:
    """Like ``visible``, but also escapes line ends and tabs."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def one_line(text: str, limit: int = 300) -> str:
    """The first non-empty line, truncated to a length."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= limit else f"{line[: limit - 2]} …"


def visible_json(text: str) -> str:
    """Like ``visible``, with JSON's escapes."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def moment(ms: int | None) -> str:
    """A point in time in UTC, to the second."""
    if ms is None:
        return "-"
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def watermark(ms: int) -> str:
    """A watermark: to the millisecond if it is a plausible time, else the number; ∞ at both ends."""
    if ms >= _FAR_MS:
        return "+∞"
    if ms <= -_FAR_MS:
        return "-∞"
    if _DAY * 365 <= ms < _END_MS:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
    return str(ms)


def duration(ms: int | None) -> str:
    """A duration in its two largest units: "3 d 4 h", "1 m 5 s", "0.4 s"."""
    if ms is None:
        return "-"
    if ms < 10 * _SECOND:
        return f"{ms / _SECOND:.1f} s"
    if ms < _MINUTE:
        return f"{ms // _SECOND} s"
    if ms < _HOUR:
        return f"{ms // _MINUTE} m {ms % _MINUTE // _SECOND} s"
    if ms < _DAY:
        return f"{ms // _HOUR} h {ms % _HOUR // _MINUTE} m"
    return f"{ms // _DAY} d {ms % _DAY // _HOUR} h"


def about(ms: int) -> str:
    """A duration in its largest unit, rounded down, for sentences: "0.4 s", "45 s", "12 min", "3 h", "2 days"."""
    if ms < 10 * _SECOND:
        return f"{ms / _SECOND:.1f}".removesuffix(".0") + " s"
    for unit, name, largest in ((_SECOND, "s", 2 * _MINUTE), (_MINUTE, "min", 2 * _HOUR), (_HOUR, "h", 2 * _DAY)):
        if ms < largest:
            return f"{ms // unit} {name}"
    return f"{ms // _DAY} days"


def size(count: int) -> str:
    """A number of bytes: "812 B", "4.2 MB"."""
    if count < 1000:
        return f"{count} B"
    power = min((len(str(count)) - 1) // 3, len(_UNITS))
    return f"{count / 1000**power:.1f} {_UNITS[power - 1]}"


def number(count: int | None) -> str:
    """A whole number, with a space as the thousands separator."""
    return "-" if count is None else f"{count:,}".replace(",", " ")


def type_name(description: Any) -> str:
    """A short form of a type's description: "int", "list<string?>", "Armed(active: boolean, since: long)"; ? means that it may
    be None."""
    if description is None:
        return "-"
    if isinstance(description, str):
        return description
    if not isinstance(description, dict):
        return str(description)
    kind = str(description.get("kind", "?"))
    if isinstance(fields := description.get("fields"), list):
        inside = ", ".join(f"{f.get('name')}: {type_name(f.get('type'))}" for f in fields if isinstance(f, dict))
        return f"{description.get('name') or kind}({inside})"
    parts = [type_name(value) for key, value in description.items() if key != "kind" and isinstance(value, dict)]
    parts += [type_name(each) for value in description.values() if isinstance(value, list) for each in value]
    if kind == "optional" and len(parts) == 1:
        return f"{parts[0]}?"
    return f"{kind}<{', '.join(parts)}>" if parts else kind


_BYTES = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(b|bytes|[kmgt]i?b?)\s*\Z", re.IGNORECASE)


def parse_bytes(key: str, value: Any) -> int:
    """Bytes of an int, or of text such as ``"512m"``, ``"512 MB"`` or ``"2 GiB"``; as in Spark and Flink, a unit is a power of
    1024."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _BYTES.match(str(value))
    if match is None:
        raise ConfigError(f"{key} = {value!r} is not an amount of memory; write it as '512m' or '2g'")
    return int(float(match[1]) * 1024 ** "bkmgt".index(match[2][0].lower()))


_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zµ]*)\s*\Z", re.IGNORECASE)
_UNITS_MS = {
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1.0),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1e3),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 6e4),
    **dict.fromkeys(("h", "hour", "hours"), 3.6e6),
    **dict.fromkeys(("d", "day", "days"), 8.64e7),
}


def parse_duration_ms(key: str, value: Any) -> int:
    """Milliseconds of a timedelta, an int of ms (as everywhere in PyFlink's API), or text such as ``"10 s"``, ``"5min"``.

    ConfigError for text without a unit, which may mean seconds as well as milliseconds.
    """
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    text = f"{value} ms" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    match = _DURATION.match(text)
    unit = None if match is None else _UNITS_MS.get(match[2].lower())
    if match is not None and not match[2] and float(match[1]):
        raise ConfigError(f"{key} = {value!r} has no unit; write '{match[1]} ms', '{match[1]} s' or '{match[1]} min'")
    if match is None or unit is None:
        raise ConfigError(f"{key} = {value!r} is not a duration; write it as '500 ms', '10 s', '5 min', '6 h' or '7 d'")
    return int(float(match[1]) * unit)
