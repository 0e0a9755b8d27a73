"""Expression: a column, a value, or what is computed from them, with PyFlink's operators and methods."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from forkpoint.errors import ConfigError
from forkpoint.table.api.nodes import (
    Aggregate,
    FieldAt,
    Fields,
    Interval,
    Name,
    Named,
    Node,
    OverWindow,
    Relation,
    Sql,
    Value,
    WindowProperty,
    Writer,
    called,
    infix,
    quoted,
)
from forkpoint.table.data_types import DataType

if TYPE_CHECKING:
    from forkpoint.patterns.conditions import ColumnCondition
    from forkpoint.types import TypeInformation

TimeIntervalUnit = Enum(
    "TimeIntervalUnit",
    "YEAR YEAR_TO_MONTH QUARTER MONTH WEEK DAY DAY_TO_HOUR DAY_TO_MINUTE DAY_TO_SECOND HOUR SECOND HOUR_TO_MINUTE "
    "HOUR_TO_SECOND MINUTE MINUTE_TO_SECOND",
)
"""The units of ``extract``, ``floor`` and ``ceil``."""
TimePointUnit = Enum("TimePointUnit", "YEAR MONTH DAY HOUR MINUTE SECOND QUARTER WEEK MILLISECOND MICROSECOND")
"""The units of ``timestamp_diff``."""
JsonType = Enum("JsonType", "VALUE SCALAR ARRAY OBJECT")
JsonExistsOnError = Enum("JsonExistsOnError", "TRUE FALSE UNKNOWN ERROR")
JsonValueOnEmptyOrError = Enum("JsonValueOnEmptyOrError", "NULL ERROR DEFAULT")
JsonQueryWrapper = Enum("JsonQueryWrapper", "WITHOUT_ARRAY CONDITIONAL_ARRAY UNCONDITIONAL_ARRAY")
JsonQueryOnEmptyOrError = Enum("JsonQueryOnEmptyOrError", "NULL EMPTY_ARRAY EMPTY_OBJECT ERROR")
JsonOnNull = Enum("JsonOnNull", "NULL ABSENT")


def node_of(value: Any) -> Node:
    """An expression's node, or that of a literal."""
    return value._node if isinstance(value, Expression) else Value(value)


class _Property:
    """A property that makes an expression of its expression."""

    def __init__(self, make: Callable[[Node], Node], doc: str) -> None:
        self._make, self.__doc__ = make, doc

    def __get__(self, expression: Expression | None, owner: type) -> Expression:
        return self if expression is None else Expression(self._make(expression._node))  # type: ignore[return-value]


def _function(name: str) -> _Property:
    return _Property(lambda node: called(name, node), f"``{name}(…)`` of SQL.")


def _aggregate(name: str) -> _Property:
    return _Property(lambda node: Aggregate(name, (node,)), f"``{name}(…)`` of SQL.")


def _suffix(text: str) -> _Property:
    return _Property(lambda node: Sql(("(", node, f" {text})")), f"``… {text}`` of SQL.")


def _interval(unit: str) -> _Property:
    def make(node: Node) -> Node:
        match node:
            case Value(int() as count, None):
                return Interval(count, unit)
        raise ConfigError(f"an interval is a whole number of units, such as lit(10).{unit.lower()}s")

    return _Property(make, f"An interval of so many {unit.lower()}s.")


def _method(name: str) -> Callable[..., Expression]:
    def method(self: Expression, *arguments: Any) -> Expression:
        given = [each for each in arguments if each is not None]
        return Expression(called(name, self._node, *map(node_of, given)))

    method.__doc__ = f"``{name}(…)`` of SQL."
    return method


def _operator(text: str) -> Callable[[Expression, Any], Expression]:
    return lambda self, other: Expression(infix(self._node, text, node_of(other)))


def _reversed(text: str) -> Callable[[Expression, Any], Expression]:
    return lambda self, other: Expression(infix(node_of(other), text, self._node))


def _sum(one: Node, other: Node) -> Expression:
    """The sum of two expressions; as in Flink, of a text and another one both together."""
    is_text = any(isinstance(each, Value) and isinstance(each.value, str) for each in (one, other))
    return Expression(infix(one, "||" if is_text else "+", other))


class Expression:
    """A column, a value, or what is computed from them. Made with ``col`` and ``lit``.

    ``+ - * / %``, comparisons, ``&``, ``|`` and ``~`` are SQL's operators; ``expression[i]`` is an element of an ARRAY or MAP,
    and ``expression.f`` the field ``f`` of a ROW, unless a method has that name.
    """

    __hash__ = object.__hash__

    def __init__(self, node: Node) -> None:
        self._node = node

    def __str__(self) -> str:
        return Writer().text(self._node)

    def __repr__(self) -> str:
        return f"<Expression {self}>"

    def __bool__(self) -> bool:
        raise ConfigError(f"{self} has no value yet; combine conditions with &, | and ~ instead of and, or and not")

    def _bound_to(self, of: TypeInformation | None) -> ColumnCondition:
        """The expression as a condition of a pattern, over elements of this type. Raises ConfigError."""
        from forkpoint.table.conditions import bound_condition

        return bound_condition(str(self), of)

    def __getattr__(self, name: str) -> Expression:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.get(name)

    def __getitem__(self, index: Any) -> Expression:
        return self.at(index)

    __iter__ = None

    __eq__ = _operator("=")  # type: ignore[assignment]
    __ne__ = _operator("<>")  # type: ignore[assignment]
    __lt__, __le__, __gt__, __ge__ = _operator("<"), _operator("<="), _operator(">"), _operator(">=")
    __and__, __or__, __rand__, __ror__ = _operator("AND"), _operator("OR"), _reversed("AND"), _reversed("OR")
    __sub__, __mul__, __truediv__, __mod__ = map(_operator, "-*/%")
    __rsub__, __rmul__, __rtruediv__, __rmod__ = map(_reversed, "-*/%")

    def __add__(self, other: Any) -> Expression:
        return _sum(self._node, node_of(other))

    def __radd__(self, other: Any) -> Expression:
        return _sum(node_of(other), self._node)

    def __invert__(self) -> Expression:
        return self.is_not_true

    def __neg__(self) -> Expression:
        return Expression(Sql(("(- ", self._node, ")")))

    def __abs__(self) -> Expression:
        return self.abs

    def __pow__(self, exponent: Any) -> Expression:
        return Expression(called("POWER", self._node, node_of(exponent)))

    def __rpow__(self, base: Any) -> Expression:
        return Expression(called("POWER", node_of(base), self._node))

    # -- names, types, order

    def alias(self, name: str, *extra_names: str) -> Expression:
        """The expression as a column of this name; several names are those of a table function's columns."""
        return Expression(Named(self._node, (name, *extra_names)))

    def cast(self, data_type: DataType) -> Expression:
        """The value as another type. A value that does not fit is an error."""
        return Expression(Sql(("CAST(", self._node, f" AS {data_type.label})")))

    def try_cast(self, data_type: DataType) -> Expression:
        """The value as another type; NULL if it does not fit."""
        return Expression(Sql(("TRY_CAST(", self._node, f" AS {data_type.label})")))

    asc = _Property(lambda node: Sql((node, " ASC")), "Ascending, in ``order_by``. NULL is less than all values.")
    desc = _Property(lambda node: Sql((node, " DESC")), "Descending, in ``order_by``.")

    # -- conditions

    is_null, is_not_null = _suffix("IS NULL"), _suffix("IS NOT NULL")
    is_true, is_false = _suffix("IS TRUE"), _suffix("IS FALSE")
    is_not_true, is_not_false = _suffix("IS NOT TRUE"), _suffix("IS NOT FALSE")

    def between(self, lower_bound: Any, upper_bound: Any) -> Expression:
        """Whether the value is at least ``lower_bound`` and at most ``upper_bound``."""
        return Expression(Sql(("(", self._node, " BETWEEN ", node_of(lower_bound), " AND ", node_of(upper_bound), ")")))

    def not_between(self, lower_bound: Any, upper_bound: Any) -> Expression:
        """Whether the value is less than ``lower_bound`` or greater than ``upper_bound``."""
        return Expression(Sql(("(", self._node, " NOT BETWEEN ", node_of(lower_bound), " AND ", node_of(upper_bound), ")")))

    def in_(self, first_element_or_table: Any, *remaining_elements: Any) -> Expression:
        """Whether the value is among others, or in the one column of a table."""
        if hasattr(first_element_or_table, "execute_insert"):
            return Expression(Sql(("(", self._node, " IN ", Relation(first_element_or_table), ")")))
        values = [node_of(each) for each in (first_element_or_table, *remaining_elements)]
        return Expression(Sql(("(", self._node, " IN ", called("", *values), ")")))

    def then(self, if_true: Any, if_false: Any) -> Expression:
        """One value if the condition is true, else another."""
        return Expression(called("IF", self._node, node_of(if_true), node_of(if_false)))

    def like(self, pattern: Any, escape: Any = None) -> Expression:
        """Whether a text is like a pattern: ``%`` is any text, ``_`` any sign."""
        more = () if escape is None else (" ESCAPE ", node_of(escape))
        return Expression(Sql(("(", self._node, " LIKE ", node_of(pattern), *more, ")")))

    def similar(self, pattern: Any) -> Expression:
        """Whether a text matches a pattern with ``%``, ``_`` and signs of regular expressions."""
        return Expression(infix(self._node, "SIMILAR TO", node_of(pattern)))

    # -- aggregates and windows

    sum, sum0, count, avg, min, max = map(_aggregate, ("SUM", "SUM0", "COUNT", "AVG", "MIN", "MAX"))
    first_value, last_value = _aggregate("FIRST_VALUE"), _aggregate("LAST_VALUE")
    stddev_pop, stddev_samp = _aggregate("STDDEV_POP"), _aggregate("STDDEV_SAMP")
    var_pop, var_samp = _aggregate("VAR_POP"), _aggregate("VAR_SAMP")
    collect, array_agg = _aggregate("COLLECT"), _aggregate("ARRAY_AGG")

    @property
    def distinct(self) -> Expression:
        """The aggregate of distinct values only."""
        match self._node:
            case Aggregate(function, arguments):
                return Expression(Aggregate(function, arguments, distinct=True))
        raise ConfigError(f"distinct is of an aggregate, such as col('a').count.distinct, not of {self}")

    def list_agg(self, separator: Any = ",") -> Expression:
        """The texts as one, with a separator between them."""
        return Expression(Aggregate("LISTAGG", (self._node, node_of(separator))))

    def over(self, alias: Any) -> Expression:
        """The aggregate over the rows of an over window."""
        match node_of(alias):
            case Name(name) | Value(str() as name):
                return Expression(OverWindow(self._node, name))
        raise ConfigError(f"over() takes the alias of an over window: col('w'), not {alias}")

    start = _Property(lambda node: WindowProperty(node, "START"), "The start of a window.")
    end = _Property(lambda node: WindowProperty(node, "END"), "The end of a window, which is not part of it.")
    rowtime = _Property(lambda node: WindowProperty(node, "ROWTIME"), "The event time of a window's result.")
    proctime = _Property(lambda node: WindowProperty(node, "PROCTIME"), "Refused: use event time.")

    # -- intervals

    year, years, quarter, quarters = map(_interval, ("YEAR", "YEAR", "QUARTER", "QUARTER"))
    month, months, week, weeks = map(_interval, ("MONTH", "MONTH", "WEEK", "WEEK"))
    day, days, hour, hours = map(_interval, ("DAY", "DAY", "HOUR", "HOUR"))
    minute, minutes, second, seconds = map(_interval, ("MINUTE", "MINUTE", "SECOND", "SECOND"))
    milli, millis = map(_interval, ("MILLI", "MILLI"))

    # -- numbers

    exp, log10, log2, ln, sqrt, abs, sign = map(_function, ("EXP", "LOG10", "LOG2", "LN", "SQRT", "ABS", "SIGN"))
    sin, cos, tan, cot, sinh, cosh, tanh = map(_function, ("SIN", "COS", "TAN", "COT", "SINH", "COSH", "TANH"))
    asin, acos, atan, degrees, radians = map(_function, ("ASIN", "ACOS", "ATAN", "DEGREES", "RADIANS"))
    bin, hex, unhex = map(_function, ("BIN", "HEX", "UNHEX"))
    round, truncate, percentile = map(_method, ("ROUND", "TRUNCATE", "PERCENTILE"))

    def log(self, base: Any = None) -> Expression:
        """The logarithm, natural unless a base is given."""
        return Expression(called("LN", self._node) if base is None else called("LOG", node_of(base), self._node))

    # -- texts

    char_length, upper_case, lower_case = map(_function, ("CHAR_LENGTH", "UPPER", "LOWER"))
    init_cap, reverse, ascii, chr = map(_function, ("INITCAP", "REVERSE", "ASCII", "CHR"))
    from_base64, to_base64 = map(_function, ("FROM_BASE64", "TO_BASE64"))
    md5, sha1, sha224, sha256, sha384, sha512 = map(_function, ("MD5", "SHA1", "SHA224", "SHA256", "SHA384", "SHA512"))
    sha2, concat, substring, substr = map(_method, ("SHA2", "CONCAT", "SUBSTRING", "SUBSTRING"))
    starts_with, ends_with, replace, translate = map(_method, ("STARTSWITH", "ENDSWITH", "REPLACE", "TRANSLATE"))
    lpad, rpad, left, right, repeat = map(_method, ("LPAD", "RPAD", "LEFT", "RIGHT", "REPEAT"))
    ltrim, rtrim, btrim, instr = map(_method, ("LTRIM", "RTRIM", "BTRIM", "INSTR"))
    regexp, regexp_replace, regexp_extract = map(_method, ("REGEXP", "REGEXP_REPLACE", "REGEXP_EXTRACT"))
    regexp_count, regexp_instr, regexp_substr = map(_method, ("REGEXP_COUNT", "REGEXP_INSTR", "REGEXP_SUBSTR"))
    regexp_extract_all, split_index, str_to_map = map(_method, ("REGEXP_EXTRACT_ALL", "SPLIT_INDEX", "STR_TO_MAP"))
    decode, encode, parse_url, printf, elt = map(_method, ("DECODE", "ENCODE", "PARSE_URL", "PRINTF", "ELT"))
    url_decode, url_encode, inet_aton, inet_ntoa = map(_method, ("URL_DECODE", "URL_ENCODE", "INET_ATON", "INET_NTOA"))
    if_null = _method("IFNULL")

    def trim(self, character: Any = None) -> Expression:
        """Without leading and trailing blanks, or without another sign there."""
        return self._trimmed("TRIM", "BOTH", character)

    def trim_leading(self, character: Any = None) -> Expression:
        """Without leading blanks, or without another sign there."""
        return self._trimmed("LTRIM", "LEADING", character)

    def trim_trailing(self, character: Any = None) -> Expression:
        """Without trailing blanks, or without another sign there."""
        return self._trimmed("RTRIM", "TRAILING", character)

    def _trimmed(self, function: str, side: str, character: Any) -> Expression:
        if character is None:
            return Expression(called(function, self._node))
        return Expression(Sql((f"TRIM({side} ", node_of(character), " FROM ", self._node, ")")))

    def position(self, haystack: Any) -> Expression:
        """Where the text is in another one, from 1; 0 if it is not."""
        return Expression(Sql(("POSITION(", self._node, " IN ", node_of(haystack), ")")))

    def locate(self, s: Any, pos: Any = None) -> Expression:
        """Where the text is in another one, at ``pos`` or later."""
        return Expression(called("LOCATE", self._node, node_of(s), *([] if pos is None else [node_of(pos)])))

    def overlay(self, new_string: Any, starting: Any, length: Any = None) -> Expression:
        """The text with another one in place of a part."""
        more = () if length is None else (" FOR ", node_of(length))
        return Expression(
            Sql(("OVERLAY(", self._node, " PLACING ", node_of(new_string), " FROM ", node_of(starting), *more, ")"))
        )

    # -- times

    to_date = _Property(lambda node: Sql(("CAST(", node, " AS DATE)")), "A text as a DATE.")
    to_time = _Property(lambda node: Sql(("CAST(", node, " AS TIME)")), "A text as a TIME.")
    to_timestamp = _Property(lambda node: Sql(("CAST(", node, " AS TIMESTAMP)")), "A text as a TIMESTAMP.")

    def extract(self, time_interval_unit: TimeIntervalUnit) -> Expression:
        """A part of a time."""
        return Expression(Sql((f"EXTRACT({time_interval_unit.name} FROM ", self._node, ")")))

    def floor(self, time_interval_unit: TimeIntervalUnit | None = None) -> Expression:
        """The number, or the time, rounded down."""
        return self._rounded("FLOOR", time_interval_unit)

    def ceil(self, time_interval_unit: TimeIntervalUnit | None = None) -> Expression:
        """The number, or the time, rounded up."""
        return self._rounded("CEIL", time_interval_unit)

    def _rounded(self, function: str, unit: TimeIntervalUnit | None) -> Expression:
        return Expression(Sql((f"{function}(", self._node, f" TO {unit.name})" if unit is not None else ")")))

    # -- parts

    cardinality, element, map_keys = map(_function, ("CARDINALITY", "ELEMENT", "MAP_KEYS"))
    map_values, map_entries = map(_function, ("MAP_VALUES", "MAP_ENTRIES"))
    flatten = _Property(Fields, "All fields of a ROW as columns, in ``select``.")
    array_append, array_contains, array_distinct = map(_method, ("ARRAY_APPEND", "ARRAY_CONTAINS", "ARRAY_DISTINCT"))
    array_position, array_prepend, array_remove = map(_method, ("ARRAY_POSITION", "ARRAY_PREPEND", "ARRAY_REMOVE"))
    array_reverse, array_slice, array_sort = map(_method, ("ARRAY_REVERSE", "ARRAY_SLICE", "ARRAY_SORT"))
    array_union, array_concat, array_max = map(_method, ("ARRAY_UNION", "ARRAY_CONCAT", "ARRAY_MAX"))
    array_join, array_min, array_except = map(_method, ("ARRAY_JOIN", "ARRAY_MIN", "ARRAY_EXCEPT"))
    array_intersect, split, map_union = map(_method, ("ARRAY_INTERSECT", "SPLIT", "MAP_UNION"))

    def at(self, index: Any) -> Expression:
        """An element of an ARRAY, the first of which is 1, or the value of a MAP's key."""
        return Expression(Sql((self._node, "[", node_of(index), "]")))

    def get(self, name_or_index: str | int) -> Expression:
        """A field of a ROW, by its name, or of a column also by its place from 0."""
        if isinstance(name_or_index, int):
            return Expression(FieldAt(self._node, name_or_index))
        return Expression(Sql((self._node, f".{quoted(name_or_index)}")))

    # -- JSON

    def is_json(self, json_type: JsonType | None = None) -> Expression:
        """Whether a text is JSON, of a type."""
        return Expression(Sql(("(", self._node, f" IS JSON{'' if json_type is None else f' {json_type.name}'})")))

    def json_exists(self, path: str, on_error: JsonExistsOnError | None = None) -> Expression:
        """Whether a JSON text has a value at a path."""
        return self._by_path("JSON_EXISTS", path, "" if on_error is None else f" {on_error.name} ON ERROR")

    def json_value(
        self,
        path: str,
        returning_type: DataType | None = None,
        on_empty: JsonValueOnEmptyOrError = JsonValueOnEmptyOrError.NULL,
        default_on_empty: Any = None,
        on_error: JsonValueOnEmptyOrError = JsonValueOnEmptyOrError.NULL,
        default_on_error: Any = None,
    ) -> Expression:
        """The value at a path of a JSON text, as text unless another type is given; NULL if there is none."""
        clauses: list[str | Node] = [] if returning_type is None else [f" RETURNING {returning_type.label}"]
        for when, answer, default in (("EMPTY", on_empty, default_on_empty), ("ERROR", on_error, default_on_error)):
            if answer is JsonValueOnEmptyOrError.DEFAULT:
                clauses += [" DEFAULT ", node_of(default), f" ON {when}"]
            elif answer is not JsonValueOnEmptyOrError.NULL:
                clauses.append(f" {answer.name} ON {when}")
        return self._by_path("JSON_VALUE", path, *clauses)

    def json_query(
        self,
        path: str,
        wrapping_behavior: JsonQueryWrapper = JsonQueryWrapper.WITHOUT_ARRAY,
        on_empty: JsonQueryOnEmptyOrError = JsonQueryOnEmptyOrError.NULL,
        on_error: JsonQueryOnEmptyOrError = JsonQueryOnEmptyOrError.NULL,
    ) -> Expression:
        """The JSON at a path of a JSON text; NULL if there is none."""
        kind = wrapping_behavior.name.removesuffix("_ARRAY")
        clauses = [] if kind == "WITHOUT" else [f" WITH {kind} ARRAY WRAPPER"]
        for when, answer in (("EMPTY", on_empty), ("ERROR", on_error)):
            if answer is not JsonQueryOnEmptyOrError.NULL:
                clauses.append(f" {answer.name.replace('_', ' ')} ON {when}")
        return self._by_path("JSON_QUERY", path, *clauses)

    def _by_path(self, function: str, path: str, *clauses: str | Node) -> Expression:
        return Expression(called(function, self._node, Value(path), clauses=clauses))

    json_quote, json_unquote = map(_method, ("JSON_QUOTE", "JSON_UNQUOTE"))
