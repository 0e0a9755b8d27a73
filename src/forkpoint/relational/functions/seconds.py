"""Digits of the seconds of times: values that are cut, and texts with as many digits as a type has."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.relational.functions.registry import Datum, Function, Types, any_null
from forkpoint.relational.types import STORED, STRING, SqlType


def cut(moment: Datum, precision: int) -> Datum:
    """Times without the digits of seconds after the first ``precision``, which are not rounded."""
    if precision >= STORED:
        return moment
    count, step = pc.cast(moment, pa.int64()), 10 ** (STORED - precision)
    rest = pc.subtract(count, pc.multiply(pc.divide(count, step), step))
    if isinstance(rest, pa.Array) and not pc.any(pc.not_equal(rest, 0)).as_py():
        return moment
    rest = pc.if_else(pc.less(rest, 0), pc.add(rest, step), rest)  # before 1970, division rounds up
    return pc.cast(pc.subtract(count, rest), moment.type)


def _text(moment: Datum, precision: Datum) -> Datum:
    """A TIMESTAMP has all its digits; a TIME has no zeros at the end, but one digit."""
    digits = precision.as_py()
    if pa.types.is_time(moment.type):
        text = pc.cast(moment, pa.string())
        return pc.replace_substring_regex(_of_length(text, digits), r"(\.\d+?)0+$", r"\1")
    return _of_length(pc.cast(pc.cast(moment, pa.timestamp("us")), pa.string()), digits)


def _of_length(text: Datum, digits: int) -> Datum:
    """Times with 6 digits of seconds as those with more or fewer."""
    if digits >= STORED:
        return pc.binary_join_element_wise(text, "0" * (digits - STORED), "")
    return pc.replace_substring_regex(text, rf"\.?\d{{{STORED - digits}}}$" if digits == 0 else rf"\d{{{STORED - digits}}}$", "")


def _result(types: Types) -> SqlType:
    return STRING.with_null(any_null(types))


TIME_TEXT = "TIME TEXT"
"""The text of a time with as many digits of seconds as its type has, which are the second argument."""
OF_SECONDS: dict[str, Function] = {TIME_TEXT: Function((2, 2), _result, _text)}
