"""The digits of decimals, (precision, scale): those that the results of operations have, as in Flink's LogicalTypeMerging."""

from __future__ import annotations

Digits = tuple[int, int]

MOST = 38
_KEPT = 6
"""Digits after the point that a result keeps when it has more than 38."""
OF_INTEGERS: dict[str, Digits] = {"TINYINT": (3, 0), "SMALLINT": (5, 0), "INT": (10, 0), "BIGINT": (19, 0)}


def adjusted(precision: int, scale: int) -> Digits:
    """At most 38 digits: those after the point give way to those before it."""
    if precision <= MOST:
        return precision, scale
    return MOST, max(MOST - (precision - scale), min(scale, _KEPT))


def of_sum(one: Digits, other: Digits) -> Digits:
    """Of ``+`` and ``-``."""
    (p, s), (q, t) = one, other
    return max(p - s, q - t) + max(s, t) + 1, max(s, t)


def of_product(one: Digits, other: Digits) -> Digits:
    (p, s), (q, t) = one, other
    return p + q + 1, s + t


def of_quotient(one: Digits, other: Digits) -> Digits:
    (p, s), (q, t) = one, other
    scale = max(6, s + q + 1)
    return p - s + t + scale, scale


def of_remainder(one: Digits, other: Digits) -> Digits:
    (p, s), (q, t) = one, other
    return min(p - s, q - t) + max(s, t), max(s, t)


def of_rounded(digits: Digits, places: int) -> Digits:
    """Of ROUND and TRUNCATE to a literal number of places."""
    precision, scale = digits
    if places >= scale:
        return digits
    return min(MOST, 1 + precision - scale + max(places, 0)), max(places, 0)


def exact_common(digits: list[Digits]) -> Digits:
    """Digits with which all these numbers are exact; they may be more than 38."""
    scale = max(s for _, s in digits)
    return max(p - s for p, s in digits) + scale, scale


def common(digits: list[Digits]) -> Digits:
    """Of values that a CASE, a UNION and the like choose from: if there are more than 38, all those before the point stay."""
    precision, scale = exact_common(digits)
    whole = min(precision - scale, MOST)
    scale = min(scale, MOST - whole)
    return whole + scale, scale
