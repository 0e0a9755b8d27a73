"""Queries with MATCH_RECOGNIZE and the tables they read: Flink SQL runs them through ``src/Queries.java``.

``TABLES`` has for each table its columns with their types, its watermark (a column, and a bound in milliseconds: a watermark is
the greatest time so far, less the bound, less 1 ms, and comes behind each row), and its rows in the order of arrival. ``QUERIES``
is a list of dicts with ``name`` and ``sql``.
"""

from __future__ import annotations

from textwrap import dedent
from typing import Any


def rows(text: str, day: str = "2026-03-01") -> list[list[Any]]:
    """Lines of words: a time of the day, then values; - is NULL."""
    found = []
    for line in text.strip().splitlines():
        key, time, *values = line.split()
        read = [None if v == "-" else int(v) if v.lstrip("-").isdigit() else v for v in values]
        found.append([None if key == "-" else key, f"{day} {time}", *read])
    return found


# Two prices at one time, prices without a value, partitions whose rows mix, one without a name.
TICKER = """
A 10:00:00 10 1 open
A 10:00:01 8 1 -
B 10:00:01 20 2 open
A 10:00:02 6 2 -
B 10:00:02 22 2 -
A 10:00:03 9 1 x
B 10:00:03 - 2 x
A 10:00:04 12 3 -
B 10:00:04 18 1 -
- 10:00:05 5 1 -
A 10:00:05 12 1 x
A 10:00:05 11 2 -
B 10:00:05 15 1 -
- 10:00:06 4 1 -
A 10:00:06 7 1 -
B 10:00:06 19 2 x
- 10:00:07 9 1 x
A 10:00:07 13 1 -
C 10:00:08 1 1 -
A 10:00:09 13 2 close
B 10:00:10 19 1 close
"""

# Out of order by up to three seconds, and one row later than that.
READINGS = """
s1 09:00:02 5
s1 09:00:00 3
s2 09:00:01 7
s1 09:00:01 4
s1 09:00:04 9
s2 09:00:03 -
s1 09:00:03 2
s2 09:00:05 8
s1 09:00:10 6
s1 09:00:04 1
s2 09:00:11 3
s2 09:00:09 4
s1 09:00:12 7
s1 09:00:12 5
"""

TABLES: dict[str, dict[str, Any]] = {
    "ticker": {
        "columns": {"symbol": "STRING", "ts": "TIMESTAMP(3)", "price": "INT", "tax": "INT", "note": "STRING"},
        "watermark": ["ts", 0],
        "rows": rows(TICKER),
    },
    "readings": {
        "columns": {"sensor": "STRING", "ts": "TIMESTAMP(3)", "level": "INT"},
        "watermark": ["ts", 3000],
        "rows": rows(READINGS),
    },
}

QUERIES: list[dict[str, str]] = []


def query(name: str, sql: str) -> None:
    assert all(name != other["name"] for other in QUERIES), name
    QUERIES.append({"name": name, "sql": dedent(sql).strip()})


def match(name: str, clauses: str, select: str = "*", table: str = "ticker", partition: str = "symbol") -> None:
    """A query of the table's rows, by partition and in the order of time."""
    by = f"PARTITION BY {partition}\n" if partition else ""
    query(name, f"SELECT {select} FROM {table} MATCH_RECOGNIZE (\n{by}ORDER BY ts\n{dedent(clauses).strip()}\n) AS m")


FALLING = """
    MEASURES S.price AS start_price, LAST(D.price) AS low, LAST(U.price) AS high, COUNT(D.price) AS falls
    ONE ROW PER MATCH
    {skip}
    PATTERN ({pattern})
    DEFINE D AS D.price < LAST(D.price, 1) OR LAST(D.price, 1) IS NULL AND D.price < S.price,
           U AS U.price > LAST(D.price)
"""


def falling(name: str, pattern: str, skip: str = "AFTER MATCH SKIP PAST LAST ROW") -> None:
    match(name, FALLING.format(skip=skip, pattern=pattern))


# fmt: off
# Quantifiers.
falling("v_shape", "S D+ U")
falling("v_shape_reluctant", "S D+? U")
falling("v_shape_star", "S D* U")
falling("v_shape_star_reluctant", "S D*? U")
falling("v_shape_optional", "S D? U")
falling("v_shape_optional_reluctant", "S D?? U")
falling("v_shape_times", "S D{2} U")
falling("v_shape_times_range", "S D{1,2} U")
falling("v_shape_times_range_reluctant", "S D{1,2}? U")
falling("v_shape_times_or_more", "S D{2,} U")
falling("v_shape_times_or_more_reluctant", "S D{2,}? U")
falling("v_shape_at_most", "S D{,2} U")
falling("v_shape_times_none", "S D{0} U")
falling("v_shape_times_from_none", "S D{0,2} U")
falling("v_shape_two_loops", "S D+ U{2,3} X")
falling("last_greedy", "S D+")
falling("last_greedy_star", "S D*")
falling("last_reluctant", "S D+?")
falling("last_greedy_range", "S D{1,2}")
falling("last_times", "S D{2}")
falling("last_optional", "S D U?")
falling("last_optional_reluctant", "S D U??")
match("only_greedy", "MEASURES COUNT(D.price) AS c PATTERN (D+) DEFINE D AS D.price > 10")
match("only_reluctant", "MEASURES COUNT(D.price) AS c PATTERN (D+?) DEFINE D AS D.price > 10")
falling("only_star", "S*")

# What comes after a match.
for skip in ("PAST LAST ROW", "TO NEXT ROW", "TO FIRST D", "TO LAST D", "TO D", "TO LAST U", "TO FIRST S", "TO FIRST Z"):
    falling(f"skip_{skip.lower().replace(' ', '_')}", "S D+ U", f"AFTER MATCH SKIP {skip}")
falling("skip_to_first_missing", "S D* U", "AFTER MATCH SKIP TO FIRST D")
falling("skip_to_last_missing", "S D* U", "AFTER MATCH SKIP TO LAST D")
falling("skip_by_default", "S D+ U", "")
falling("skip_to_next_overlapping", "S D+ U+ X", "AFTER MATCH SKIP TO NEXT ROW")

for skip in ("PAST LAST ROW", "TO NEXT ROW", "TO FIRST D", "TO LAST D"):
    match(f"skip_optional_{skip.lower().replace(' ', '_')}", f"""
        MEASURES S.price AS s, D.price AS d, U.price AS u
        AFTER MATCH SKIP {skip}
        PATTERN (S D? U)
        DEFINE S AS S.tax < 3, D AS D.price < S.price, U AS U.price > S.price
    """)
    match(f"skip_held_back_{skip.lower().replace(' ', '_')}", f"""
        MEASURES S.ts AS s, U.ts AS u
        AFTER MATCH SKIP {skip}
        PATTERN (S D*? U)
        WITHIN INTERVAL '6' SECOND
        DEFINE S AS S.price > 5, U AS U.price = S.price + 1
    """)

# Measures.
RUN = "PATTERN (A+ B) DEFINE A AS A.tax = 1, B AS B.tax > 1"
match("measures_first_and_last", f"MEASURES FIRST(A.price) AS f, LAST(A.price) AS l, A.price AS a, B.price AS b {RUN}")
match("measures_offsets", f"MEASURES FIRST(A.price, 1) AS f1, LAST(A.price, 1) AS l1, LAST(A.price, 5) AS l5 {RUN}")
match("measures_without_variable", f"MEASURES FIRST(price) AS f, LAST(price) AS l, LAST(price, 1) AS l1, price AS p {RUN}")
match("measures_aggregates", f"""
    MEASURES COUNT(A.price) AS c, SUM(A.price) AS s, AVG(A.price) AS v, MIN(A.price) AS lo, MAX(A.price) AS hi
    {RUN}
""")
match("measures_aggregates_of_all", f"MEASURES COUNT(price) AS c, SUM(price) AS s, MAX(tax) AS t {RUN}")
match("measures_count_star", f"MEASURES COUNT(*) AS c {RUN}")
match("measures_count_star_of_variable", f"MEASURES COUNT(A.*) AS c {RUN}")
match("measures_distinct", f"MEASURES COUNT(DISTINCT A.price) AS c {RUN}")
match("measures_of_nulls", f"MEASURES COUNT(A.note) AS n, LAST(A.note) AS l, SUM(A.price) AS s, AVG(A.price * 1.0) AS v {RUN}")
match("measures_of_expressions", f"""
    MEASURES SUM(A.price * A.tax) + B.tax AS s, LAST(A.price) - FIRST(A.price) AS d, UPPER(B.note) AS u
    {RUN}
""")
match("measures_two_variables_in_one", f"MEASURES SUM(A.price + B.tax) AS s {RUN}")
match("measures_aggregate_of_missing", """
    MEASURES COUNT(D.price) AS c, SUM(D.price) AS s, LAST(D.price) AS l, D.tax AS t
    PATTERN (S D* U)
    DEFINE D AS D.price < S.price, U AS U.price > 12
""")
match("measures_case_and_coalesce", f"""
    MEASURES CASE WHEN SUM(A.price) > 20 THEN 'much' ELSE 'little' END AS s, COALESCE(B.note, '-') AS n
    {RUN}
""")
match("measures_times", f"MEASURES FIRST(A.ts) AS began, B.ts AS ended, MATCH_ROWTIME() AS r {RUN}")
match("measures_match_rowtime_used", f"MEASURES MATCH_ROWTIME() AS r, B.price AS p {RUN}")
match("measures_match_proctime", f"MEASURES B.price AS p, MATCH_PROCTIME() AS t {RUN}", "p, t IS NOT NULL AS known")
match("measures_match_number", f"MEASURES MATCH_NUMBER() AS n, B.price AS p {RUN}")
match("measures_classifier", f"MEASURES CLASSIFIER() AS c, B.price AS p {RUN}")
match("measures_prev", f"MEASURES PREV(B.price) AS p {RUN}")
match("measures_next", f"MEASURES NEXT(A.price) AS p {RUN}")
match("measures_running", f"MEASURES RUNNING LAST(A.price) AS r, B.price AS p {RUN}")
match("measures_final", f"MEASURES FINAL LAST(A.price) AS r, B.price AS p {RUN}")
match("measures_none", f"{RUN}")
match("measures_first_of_expression", f"MEASURES FIRST(A.price * 2) AS f, LAST(A.price + A.tax, 1) AS l {RUN}")
match("measures_first_of_two_variables", f"MEASURES FIRST(A.price + B.price) AS f {RUN}")
match("measures_unknown_column", f"MEASURES A.nothing AS f {RUN}")
match("measures_same_name_twice", f"MEASURES A.price AS p, B.price AS p {RUN}")
match("measures_named_as_partition", f"MEASURES B.price AS symbol {RUN}")
match("measures_of_texts", f"MEASURES MIN(A.note) AS lo, MAX(A.note) AS hi, LAST(A.note || '!') AS l, COUNT(A.note) AS c {RUN}")
match("measures_of_doubles", f"""
    MEASURES AVG(CAST(A.price AS DOUBLE)) AS v, SUM(A.price / 4.0) AS s, SUM(CAST(A.price AS DECIMAL(8, 2))) AS d
    {RUN}
""")
match("measures_of_constants", f"MEASURES 1 AS c, 'x' AS x, CAST(NULL AS INT) AS n {RUN}")
match("measures_other_aggregates", f"MEASURES STDDEV_POP(A.price) AS s {RUN}")
match("measures_list", f"MEASURES LISTAGG(A.note) AS s {RUN}")
match("measures_offset_of_column", f"MEASURES LAST(A.price, B.tax) AS s {RUN}")
match("measures_offset_negative", f"MEASURES LAST(A.price, -1) AS s {RUN}")
match("measures_partition_column", f"MEASURES A.symbol AS s, LAST(symbol) AS t {RUN}")
match("measures_rowtime_alone", f"MEASURES MATCH_ROWTIME() AS r {RUN}", partition="")
match("measures_rowtime_of_the_column", f"MEASURES MATCH_ROWTIME(ts) AS r {RUN}")
match("measures_two_aggregates", f"MEASURES MAX(A.price) - MIN(A.price) AS span, SUM(A.price) / COUNT(A.price) AS v {RUN}")
match("measures_nested_aggregates", f"MEASURES SUM(LAST(A.price)) AS s {RUN}")
match("measures_aggregate_in_first", f"MEASURES FIRST(SUM(A.price)) AS s {RUN}")
match("measures_unnamed", f"MEASURES B.price {RUN}")

# Conditions.
match("define_undefined_variable", "MEASURES S.price AS s, X.price AS x PATTERN (S X) DEFINE S AS S.price > 10")
match("define_unused_variable", "MEASURES A.price AS a PATTERN (A B) DEFINE A AS A.tax = 1, B AS B.tax = 2, Z AS Z.tax = 3")
match("define_nothing", "MEASURES A.price AS a, B.price AS b PATTERN (A B)")
match("define_aggregate", """
    MEASURES COUNT(A.price) AS c, SUM(A.price) AS s, B.price AS b
    PATTERN (A+ B)
    DEFINE A AS SUM(A.price) < 30
""")
match("define_aggregate_of_other", """
    MEASURES COUNT(A.price) AS c, B.price AS b
    PATTERN (A{2,} B)
    DEFINE A AS A.tax < 3, B AS B.price > AVG(A.price)
""")
match("define_count", "MEASURES FIRST(A.price) AS f, LAST(A.price) AS l PATTERN (A+ B) DEFINE A AS COUNT(A.price) < 3")
match("define_last_of_own", """
    MEASURES FIRST(A.price) AS f, LAST(A.price) AS l, COUNT(A.price) AS c
    PATTERN (A+ B)
    DEFINE A AS LAST(A.price, 1) IS NULL OR A.price > LAST(A.price, 1)
""")
match("define_prev", "MEASURES A.price AS a PATTERN (S A) DEFINE A AS A.price > PREV(A.price)")
match("define_next", "MEASURES A.price AS a PATTERN (S A) DEFINE A AS A.price > NEXT(A.price)")
match("define_first", """
    MEASURES COUNT(A.price) AS c, FIRST(A.price) AS f, B.price AS b
    PATTERN (A+ B)
    DEFINE A AS A.price >= FIRST(A.price), B AS B.price < FIRST(A.price)
""")
match("define_column_without_variable", "MEASURES A.price AS a, B.price AS b PATTERN (A B) DEFINE A AS price > 10, B AS tax = 1")
match("define_later_variable", "MEASURES A.price AS a, B.price AS b PATTERN (A B) DEFINE A AS A.price > B.price")
match("define_nulls", "MEASURES A.tax AS a, B.price AS b PATTERN (A B) DEFINE A AS A.price IS NULL, B AS B.price > 1")
match("define_null_condition", "MEASURES A.tax AS a, B.price AS b PATTERN (A B) DEFINE A AS A.price > 0, B AS NOT B.price > 10")
match("define_not_boolean", "MEASURES A.tax AS a PATTERN (A B) DEFINE A AS A.price")
match("define_function", """
    MEASURES A.note AS a, B.price AS b
    PATTERN (A B)
    DEFINE A AS UPPER(A.note) LIKE 'O%', B AS MOD(B.price, 2) = 0
""")
match("define_subquery", "MEASURES A.price AS a PATTERN (A B) DEFINE A AS A.price > (SELECT 10)")
match("define_match_number", "MEASURES A.price AS a PATTERN (A B) DEFINE A AS MATCH_NUMBER() = 1")
match("define_classifier", "MEASURES A.price AS a PATTERN (A B) DEFINE A AS CLASSIFIER() = 'A'")
match("define_twice", "MEASURES A.price AS a PATTERN (A B) DEFINE A AS A.price > 1, A AS A.price > 2")
match("define_case_of_names", "MEASURES a.price AS p PATTERN (a B) DEFINE A AS A.price > 11")

match("define_last_of_other", """
    MEASURES LAST(A.price) AS a, B.price AS b
    PATTERN (A{2,3}? B)
    DEFINE A AS A.tax < 3, B AS B.price > LAST(A.price, 1)
""")
match("define_sum_without_variable", """
    MEASURES COUNT(A.price) AS a, B.price AS b
    PATTERN (A+? B)
    DEFINE A AS SUM(price) < 30, B AS SUM(price) > 40
""")
match("define_in_and_between", """
    MEASURES A.price AS a, B.price AS b
    PATTERN (A B)
    DEFINE A AS A.tax IN (1, 2), B AS B.price BETWEEN 10 AND 15
""")
match("define_case", """
    MEASURES A.price AS a, B.price AS b
    PATTERN (A B)
    DEFINE A AS CASE WHEN A.tax = 1 THEN A.price > 10 ELSE FALSE END
""")
match("define_times", """
    MEASURES A.ts AS a, B.ts AS b
    AFTER MATCH SKIP PAST LAST ROW
    PATTERN (A X*? B)
    DEFINE B AS B.ts >= A.ts + INTERVAL '3' SECOND
""")
match("define_constant_false", "MEASURES A.price AS a PATTERN (A B) DEFINE B AS FALSE")

# Within.
match("within", """
    MEASURES FIRST(A.ts) AS began, B.ts AS ended
    PATTERN (A+ B) WITHIN INTERVAL '2' SECOND
    DEFINE A AS A.tax = 1, B AS B.tax > 1
""")
match("within_edge", """
    MEASURES FIRST(A.ts) AS began, B.ts AS ended
    PATTERN (A+ B) WITHIN INTERVAL '1' SECOND
    DEFINE A AS A.tax = 1, B AS B.tax > 1
""")
match("within_greedy", """
    MEASURES FIRST(A.ts) AS began, LAST(A.ts) AS ended, B.ts AS b
    PATTERN (A+ B) WITHIN INTERVAL '4' SECOND
    DEFINE B AS B.note = 'x'
""")
match("within_column", "MEASURES B.price AS p PATTERN (A B) WITHIN INTERVAL '1' MONTH DEFINE A AS A.tax = 1")

# Patterns.
match("pattern_alternation", "MEASURES A.price AS a PATTERN (A | B) DEFINE A AS A.price > 10, B AS B.price < 5")
match("pattern_group", "MEASURES LAST(A.price) AS a PATTERN ((A B)+ C) DEFINE A AS A.price > 10, B AS B.price < 10")
match("pattern_group_once", "MEASURES LAST(A.price) AS a PATTERN ((A B) C) DEFINE A AS A.price > 10, B AS B.price < 10")
match("pattern_permute", "MEASURES A.price AS a PATTERN (PERMUTE(A, B)) DEFINE A AS A.price > 10, B AS B.price < 10")
match("pattern_exclusion", "MEASURES A.price AS a PATTERN (A {- B -} C) DEFINE A AS A.price > 10, B AS B.price < 10")
match("pattern_anchors", "MEASURES A.price AS a PATTERN (^ A B $) DEFINE A AS A.price > 10, B AS B.price < 10")
match("pattern_same_variable_twice", "MEASURES A.price AS a PATTERN (A B A) DEFINE A AS A.price > 10, B AS B.price < 10")
match("pattern_one", "MEASURES A.price AS a, A.ts AS t PATTERN (A) DEFINE A AS A.price > 11")
match("pattern_empty", "MEASURES 1 AS a PATTERN ()")
match("pattern_optional_first", "MEASURES A.price AS a, B.price AS b PATTERN (A? B) DEFINE A AS A.price > 10, B AS B.price < 10")
match("pattern_greedy_then_optional", """
    MEASURES LAST(A.price) AS a, C.price AS c
    PATTERN (A+ B? C)
    DEFINE A AS A.price > 8, B AS B.tax = 2, C AS C.tax = 1
""")
match("pattern_greedy_then_optional_reluctant", """
    MEASURES LAST(A.price) AS a, C.price AS c
    PATTERN (A+? B? C)
    DEFINE A AS A.price > 8, B AS B.tax = 2, C AS C.tax = 1
""")
match("pattern_all_optional", "MEASURES A.price AS a, B.price AS b PATTERN (A? B*?) DEFINE A AS A.price > 10, B AS B.price < 10")
match("pattern_overlapping_loops", """
    MEASURES COUNT(A.price) AS a, COUNT(B.price) AS b, C.price AS c
    PATTERN (A+ B+ C)
    DEFINE A AS A.price > 5, B AS B.price > 8, C AS C.tax = 2
""")
match("pattern_overlapping_loops_reluctant", """
    MEASURES COUNT(A.price) AS a, COUNT(B.price) AS b, C.price AS c
    PATTERN (A+? B+? C)
    DEFINE A AS A.price > 5, B AS B.price > 8, C AS C.tax = 2
""")
match("pattern_any_rows_reluctant", """
    MEASURES A.price AS a, COUNT(B.tax) AS b, C.price AS c
    PATTERN (A B*? C)
    DEFINE A AS A.note = 'open', C AS C.note = 'x'
""")
match("pattern_any_rows_greedy", """
    MEASURES A.price AS a, COUNT(B.tax) AS b, C.price AS c
    PATTERN (A B* C)
    DEFINE A AS A.note = 'open', C AS C.note = 'x'
""")

# Other clauses.
match("all_rows_per_match", f"MEASURES B.price AS p ALL ROWS PER MATCH {RUN}")
match("one_row_per_match", f"MEASURES B.price AS p ONE ROW PER MATCH {RUN}")
match("show_empty_matches", f"MEASURES B.price AS p ALL ROWS PER MATCH SHOW EMPTY MATCHES {RUN}")
match("subset", "MEASURES LAST(Z.price) AS p PATTERN (A B) SUBSET Z = (A, B) DEFINE A AS A.tax = 1, B AS B.tax > 1")
match("without_partition", f"MEASURES FIRST(A.symbol) AS s, COUNT(A.price) AS c, B.symbol AS b {RUN}", partition="")
match("two_partitions", """
    MEASURES COUNT(A.price) AS c, B.price AS b
    PATTERN (A B)
    DEFINE A AS A.price > 5
""", partition="symbol, tax")
match("partition_by_expression", f"MEASURES B.price AS b {RUN}", partition="UPPER(symbol)")
match("select_columns", f"MEASURES B.price AS b, B.tax AS t {RUN}", select="t, m.b + 1 AS more, symbol")
match("out_of_order", """
    MEASURES A.level AS a, B.level AS b, B.ts AS t
    AFTER MATCH SKIP TO NEXT ROW
    PATTERN (A B)
    DEFINE B AS B.level > A.level
""", table="readings", partition="sensor")
match("out_of_order_loop", """
    MEASURES FIRST(A.ts) AS began, COUNT(A.level) AS c, B.level AS b
    PATTERN (A+ B)
    DEFINE A AS A.level >= 4, B AS B.level < 4 OR B.level IS NULL
""", table="readings", partition="sensor")
match("within_long", """
    MEASURES FIRST(A.ts) AS a, B.ts AS b
    AFTER MATCH SKIP PAST LAST ROW
    PATTERN (A+? B) WITHIN INTERVAL '00:00:05' HOUR TO SECOND
    DEFINE A AS A.tax < 3, B AS B.note = 'x'
""")
match("within_any_rows", """
    MEASURES A.price AS a, COUNT(X.tax) AS x, B.price AS b
    AFTER MATCH SKIP PAST LAST ROW
    PATTERN (A X*? B) WITHIN INTERVAL '4' SECOND
    DEFINE A AS A.tax = 2, B AS B.note = 'x'
""")
for skip in ("PAST LAST ROW", "TO NEXT ROW", "TO FIRST B", "TO LAST B", "TO FIRST A", "TO LAST A"):
    match(f"loops_skip_{skip.lower().replace(' ', '_')}", f"""
        MEASURES FIRST(A.ts) AS a, COUNT(A.tax) AS n, LAST(B.ts) AS b, COUNT(B.tax) AS m
        AFTER MATCH SKIP {skip}
        PATTERN (A{{1,2}}? B{{1,2}}? C)
        DEFINE A AS A.tax < 3, B AS B.tax < 3, C AS C.price > 8
    """)
RISES = "MEASURES A.price AS a, B.price AS b AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) DEFINE B AS B.price > A.price"
query("order_by_two", f"SELECT * FROM ticker MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts, price {RISES}) AS m")
query("order_by_two_descending", f"""
    SELECT * FROM ticker
    MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts, price DESC
    {RISES}) AS m
""")
query("order_by_one_with_ties", f"SELECT * FROM ticker MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts {RISES}) AS m")
query("order_by_descending", f"SELECT * FROM ticker MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts DESC {RISES}) AS m")
query("order_by_other_column", f"SELECT * FROM ticker MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY price {RISES}) AS m")
query("order_by_other_column_first", f"""
    SELECT * FROM ticker
    MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY price, ts
    {RISES}) AS m
""")
query("order_by_nothing", f"SELECT * FROM ticker MATCH_RECOGNIZE (PARTITION BY symbol {RISES}) AS m")
query("of_a_query", f"""
    SELECT * FROM (SELECT symbol, ts, price + tax AS price, tax FROM ticker
    WHERE price IS NOT NULL)
    MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts
    MEASURES B.price AS b
    {RUN}) AS m
""")
query("of_an_aggregate", f"""
    SELECT * FROM (SELECT symbol, MAX(ts) AS ts, MAX(price) AS price, 1 AS tax FROM ticker
    GROUP BY symbol)
    MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts
    MEASURES B.price AS b
    {RUN}) AS m
""")
query("windows_of_matches", f"""
    WITH m AS (SELECT * FROM ticker
    MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts
    MEASURES MATCH_ROWTIME() AS r, B.price AS p
    {RUN})) SELECT window_start, COUNT(*) AS c, SUM(p) AS s
    FROM TABLE(TUMBLE(TABLE m, DESCRIPTOR(r), INTERVAL '5' SECOND))
    GROUP BY window_start, window_end
""")
query("window_of_group", f"""
    SELECT TUMBLE_START(r, INTERVAL '5' SECOND) AS w, COUNT(*) AS c, SUM(p) AS s FROM ticker
    MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts
    MEASURES MATCH_ROWTIME() AS r, B.price AS p
    {RUN}) AS m
    GROUP BY TUMBLE(r, INTERVAL '5' SECOND)
""")
query("without_alias", f"SELECT * FROM ticker MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts MEASURES B.price AS b {RUN})")
query("match_twice", f"""
    SELECT * FROM (SELECT * FROM ticker
    MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts
    MEASURES MATCH_ROWTIME() AS r, B.price AS p
    {RUN}))
    MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY r
    MEASURES X.p AS x, Y.p AS y
    PATTERN (X Y)
    DEFINE X AS X.p > 0) AS n
""")
query("where_and_union", f"""
    SELECT symbol, b FROM ticker
    MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts
    MEASURES B.price AS b
    {RUN})
    WHERE b > 12 AND symbol = 'A' UNION ALL SELECT sensor, level FROM readings
    WHERE level > 8 AND sensor = 'none'
""")
query("selected_twice", f"""
    SELECT m.symbol, m.b, m.b * 2 AS c FROM ticker AS t
    MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts
    MEASURES B.price AS b
    {RUN}) AS m (symbol, b)
""")
query("names_of_columns", f"""
    SELECT s, p FROM ticker
    MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts
    MEASURES B.price AS b
    {RUN}) AS m (s, p)
""")
