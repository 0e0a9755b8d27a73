"""The Table API makes the plans of SQL: each program has a query with the same canonical plan."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

import forkpoint as fp
from forkpoint import DataTypes, Over, Session, Slide, Table, Tumble, call, col, lit
from forkpoint.relational.canonical import canonical
from forkpoint.table.api import expressions as e
from forkpoint.table.api.expression import (
    JsonExistsOnError,
    JsonOnNull,
    JsonQueryOnEmptyOrError,
    JsonQueryWrapper,
    JsonType,
    JsonValueOnEmptyOrError,
    TimeIntervalUnit,
    TimePointUnit,
)

ROWS = "CREATE TABLE t (k STRING, g BIGINT, v BIGINT, x DOUBLE, ts TIMESTAMP(3), a ARRAY<BIGINT>, r ROW<f INT, g STRING>, {}) {}"
OTHER = "CREATE TABLE u (k2 STRING, w BIGINT) {}"
CONNECTOR = "WITH ('connector' = 'datagen')"


@pytest.fixture(scope="module")
def tables() -> fp.StreamTableEnvironment:
    t_env = fp.StreamTableEnvironment.create()
    t_env.execute_sql(ROWS.format("WATERMARK FOR ts AS ts - INTERVAL '5' SECOND", CONNECTOR))
    t_env.execute_sql(OTHER.format(CONNECTOR))
    return t_env


k, g, v, x, ts, a, r, w = map(col, ("k", "g", "v", "x", "ts", "a", "r", "w"))
MINUTES = Tumble.over(lit(10).minutes).on(ts).alias("win")
win = col("win")

Program = Callable[[Table, Table], Table]
QUERIES: list[tuple[str, Program]] = [
    ("SELECT k, v + 1 AS v FROM t WHERE g > 3", lambda t, u: t.where(g > 3).select(k, (v + 1).alias("v"))),
    (
        "SELECT k, g FROM t WHERE g BETWEEN 1 AND 3 AND k LIKE 'a%'",
        lambda t, u: t.where(g.between(1, 3)).filter(k.like("a%")).select(k, g),
    ),
    ("SELECT k, SUM(v) FROM t GROUP BY k", lambda t, u: t.group_by(k).select(k, v.sum)),
    ("SELECT SUM(v) + 1, COUNT(1) FROM t", lambda t, u: t.select(v.sum + 1, lit(1).count)),
    (
        "SELECT g % 2, COUNT(DISTINCT k), MAX(x) FROM t GROUP BY g % 2",
        lambda t, u: t.group_by((g % 2).alias("o")).select(col("o"), k.count.distinct, x.max),
    ),
    ("SELECT DISTINCT k FROM t", lambda t, u: t.select(k).distinct()),
    ("SELECT k FROM t WHERE k IN ('a', 'b') OR NOT (g = 1)", lambda t, u: t.where(k.in_("a", "b") | e.not_(g == 1)).select(k)),
    ("SELECT k FROM t WHERE k IN (SELECT k2 FROM u)", lambda t, u: t.where(k.in_(u.select(u.k2))).select(t.k)),
    ("SELECT k, w FROM t JOIN u ON k = k2", lambda t, u: t.join(u, k == u.k2).select(k, w)),
    ("SELECT k, w FROM t JOIN u ON k = k2", lambda t, u: t.join(u).where(k == u.k2).select(k, w)),
    ("SELECT k, w FROM t LEFT JOIN u ON k = k2 AND v > w", lambda t, u: t.left_outer_join(u, (k == u.k2) & (v > w)).select(k, w)),
    ("SELECT k, w FROM t RIGHT JOIN u ON k = k2", lambda t, u: t.right_outer_join(u, k == u.k2).select(k, w)),
    ("SELECT k, w FROM t FULL JOIN u ON k = k2", lambda t, u: t.full_outer_join(u, k == u.k2).select(k, w)),
    ("SELECT k, v FROM t UNION ALL SELECT * FROM u", lambda t, u: t.select(k, v).union_all(u)),
    ("SELECT k, v FROM t UNION SELECT * FROM u", lambda t, u: t.select(k, v).union(u)),
    ("SELECT k, v FROM t INTERSECT SELECT * FROM u", lambda t, u: t.select(k, v).intersect(u)),
    ("SELECT k, v FROM t EXCEPT SELECT * FROM u", lambda t, u: t.select(k, v).minus(u)),
    (
        "SELECT k, v FROM t ORDER BY v DESC, k LIMIT 3 OFFSET 1",
        lambda t, u: t.select(k, v).order_by(v.desc, k.asc).offset(1).fetch(3),
    ),
    ("SELECT k, v FROM t LIMIT 3", lambda t, u: t.select(k, v).limit(3)),
    (
        "SELECT k, COUNT(1), TUMBLE_END(ts, INTERVAL '10' MINUTE) FROM t GROUP BY k, TUMBLE(ts, INTERVAL '10' MINUTE)",
        lambda t, u: t.window(MINUTES).group_by(k, win).select(k, lit(1).count, win.end),
    ),
    (
        "SELECT k, SUM(v), HOP_START(ts, I '2' SECOND, I '10' SECOND), HOP_ROWTIME(ts, I '2' SECOND, I '10' SECOND) "
        "FROM t GROUP BY k, HOP(ts, I '2' SECOND, I '10' SECOND)".replace(" I ", " INTERVAL "),
        lambda t, u: (
            t.window(Slide.over(lit(10).seconds).every(lit(2).seconds).on(ts).alias("win"))
            .group_by(win, k)
            .select(k, v.sum, win.start, win.rowtime)
        ),
    ),
    (
        "SELECT k, MIN(v) FROM t GROUP BY k, SESSION(ts, INTERVAL '1.500' SECOND)",
        lambda t, u: t.window(Session.with_gap(lit(1500).millis).on(ts).alias("win")).group_by(k, win).select(k, v.min),
    ),
    (
        "SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM t",
        lambda t, u: t.over_window(
            Over.partition_by(k).order_by(ts).preceding(e.row_interval(2)).following(e.CURRENT_ROW).alias("o")
        ).select(k, v.sum.over(col("o"))),
    ),
    (
        "SELECT k, AVG(x) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW), "
        "COUNT(k) OVER (PARTITION BY k ORDER BY v) FROM t",
        lambda t, u: t.over_window(
            Over.order_by(ts).preceding(lit(1).hours).alias("o"),
            Over.partition_by(k).order_by(v).preceding(e.UNBOUNDED_RANGE).alias("p"),
        ).select(k, x.avg.over(col("o")), k.count.over(col("p"))),
    ),
    (
        "SELECT k AS a, g AS b, v, x, ts, a AS c, r FROM t",
        lambda t, u: t.rename_columns(a.alias("c"), k.alias("a"), g.alias("b")),
    ),
    (
        "SELECT k2, w * 2 AS w, CONCAT(k2, '!') AS m FROM u",
        lambda t, u: u.add_columns(e.concat(u.k2, "!").alias("m")).add_or_replace_columns((w * 2).alias("w")),
    ),
    ("SELECT k, g, v FROM t", lambda t, u: t.drop_columns(e.range_("x", "r"))),
    ("SELECT k, g, v, ts FROM t", lambda t, u: t.select(e.with_columns(e.range_(1, 3), ts))),
    ("SELECT v, x, ts, a, r FROM t", lambda t, u: t.select(e.without_columns(k, g))),
    (
        "SELECT a[1], r.f, r.g, CARDINALITY(a), ARRAY_CONTAINS(a, 3) FROM t",
        lambda t, u: t.select(a[1], r.flatten, a.cardinality, a.array_contains(3)),
    ),
]

EXPRESSIONS: list[tuple[str, Any]] = [
    ("-v + 2 * (x - 1.5E0) / 4", -v + 2 * (x - 1.5) / 4),
    ("POWER(x, 2), ABS(v), POWER(2, x)", [x**2, abs(v), 2**x]),
    ("k IS NULL AND (v IS NOT NULL OR (g > 1) IS NOT TRUE)", k.is_null & (v.is_not_null | ~(g > 1))),
    ("UPPER(k), INITCAP(k), CHAR_LENGTH(k), SUBSTRING(k, 2, 3)", [k.upper_case, k.init_cap, k.char_length, k.substring(2, 3)]),
    (
        "TRIM(LEADING 'x' FROM k), TRIM(k), OVERLAY(k PLACING 'y' FROM 2 FOR 1)",
        [k.trim_leading("x"), k.trim(), k.overlay("y", 2, 1)],
    ),
    (
        "POSITION('x' IN k), LOCATE('x', k), k LIKE 'a$%' ESCAPE '$'",
        [lit("x").position(k), lit("x").locate(k), k.like("a$%", "$")],
    ),
    (
        "EXTRACT(YEAR FROM ts), FLOOR(ts TO HOUR), CEIL(x)",
        [ts.extract(TimeIntervalUnit.YEAR), ts.floor(TimeIntervalUnit.HOUR), x.ceil()],
    ),
    ("ts + INTERVAL '1' DAY, ts - INTERVAL '2' MONTH", [ts + lit(1).days, ts - lit(2).months]),
    (
        "TIMESTAMPDIFF(DAY, ts, TIMESTAMP '2026-01-02 03:04:05')",
        e.timestamp_diff(TimePointUnit.DAY, ts, datetime.fromisoformat("2026-01-02T03:04:05")),
    ),
    ("ts > DATE '2026-01-02', ts + INTERVAL '0.005' SECOND", [ts > date(2026, 1, 2), ts + lit(timedelta(milliseconds=5))]),
    (
        "CAST(v AS DECIMAL(10, 2)), TRY_CAST(k AS INT), v + 1.25",
        [v.cast(DataTypes.DECIMAL(10, 2)), k.try_cast(DataTypes.INT()), v + Decimal("1.25")],
    ),
    ("IF(g > 1, 'a', 'b'), COALESCE(v, g, 0), IFNULL(k, '')", [(g > 1).then("a", "b"), e.coalesce(v, g, 0), k.if_null("")]),
    (
        "JSON_VALUE(k, '$.a'), k IS JSON OBJECT, JSON_EXISTS(k, '$.b')",
        [k.json_value("$.a"), k.is_json(JsonType.OBJECT), k.json_exists("$.b")],
    ),
    (
        "JSON_VALUE(k, '$.a' RETURNING BIGINT DEFAULT g ON EMPTY ERROR ON ERROR), JSON_EXISTS(k, '$' TRUE ON ERROR), "
        "JSON_QUERY(k, 'lax $' WITH CONDITIONAL ARRAY WRAPPER EMPTY ARRAY ON EMPTY NULL ON ERROR)",
        [
            k.json_value("$.a", DataTypes.BIGINT(), JsonValueOnEmptyOrError.DEFAULT, g, JsonValueOnEmptyOrError.ERROR),
            *(
                k.json_exists("$", JsonExistsOnError.TRUE),
                k.json_query("lax $", JsonQueryWrapper.CONDITIONAL_ARRAY, JsonQueryOnEmptyOrError.EMPTY_ARRAY),
            ),
        ],
    ),
    (
        "JSON_OBJECT('a' VALUE v, 'b' VALUE JSON_ARRAY(k NULL ON NULL) ABSENT ON NULL), JSON_OBJECT(), JSON_ARRAY()",
        [
            e.json_object(JsonOnNull.ABSENT, "a", v, "b", e.json_array(JsonOnNull.NULL, k)),
            *(e.json_object(JsonOnNull.NULL), e.json_array(JsonOnNull.NULL)),
        ],
    ),
    (
        "JSON_OBJECTAGG(k VALUE v), JSON_ARRAYAGG(v), ARRAY_AGG(DISTINCT v), COLLECT(k), PERCENTILE(v, 0.5)",
        [
            e.json_object_agg(JsonOnNull.NULL, k, v),
            *(e.json_array_agg(JsonOnNull.ABSENT, v), v.array_agg.distinct, k.collect, v.percentile(0.5)),
        ],
    ),
    ("ARRAY[v, 1], MAP['x', v], CAST(NULL AS STRING)", [e.array(v, 1), e.map_("x", v), e.null_of(DataTypes.STRING())]),
    ("MD5(k), SPLIT_INDEX(k, ',', 1), LOG(2, x), LN(x)", [k.md5, call("SPLIT_INDEX", k, ",", 1), x.log(2), x.log()]),
    (
        "v IN (1, 2), v NOT BETWEEN 1 AND 2, CONCAT_WS(',', k, 'it''s')",
        [v.in_(1, 2), v.not_between(1, 2), e.concat_ws(",", k, "it's")],
    ),
    ("r.f + 1, FROM_UNIXTIME(g), DATE_FORMAT(ts, 'yyyy')", [r.f + 1, e.from_unixtime(g), e.date_format(ts, "yyyy")]),
]


def plan_of(table: Table) -> Any:
    """The canonical plan, in which names of results do not matter."""
    found = canonical(table._plan)
    return found, [field.type for field in table._plan.schema]


def test_queries_have_the_plans_of_sql(tables: fp.StreamTableEnvironment) -> None:
    t, u = tables.from_path("t"), tables.from_path("u")
    for query, program in QUERIES:
        assert plan_of(program(t, u)) == plan_of(tables.sql_query(query)), query


def test_expressions_are_those_of_sql(tables: fp.StreamTableEnvironment) -> None:
    t = tables.from_path("t")
    for text, expressions in EXPRESSIONS:
        given = expressions if isinstance(expressions, list) else [expressions]
        assert plan_of(t.select(*given)) == plan_of(tables.sql_query(f"SELECT {text} FROM t")), text
