"""MATCH_RECOGNIZE: state in savepoints, changed queries, event time of results, refusals. Flink's results: tests/parity."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from example_counts import examples
from forkpoint.errors import RestoreRefused
from forkpoint.patterns.events import KeyEvents
from forkpoint.sql.errors import SqlError
from forkpoint.testing import Eof, run_local

NUMBER, PRICE = 2, 3
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Price(NamedTuple):
    symbol: str
    price: int
    volume: int
    ts: fp.Instant


def at(second: int) -> datetime:
    return EPOCH + timedelta(seconds=second)


FALLS = """
SELECT * FROM prices MATCH_RECOGNIZE (
  PARTITION BY symbol ORDER BY ts
  MEASURES {measures}
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (S D+ U)
  DEFINE D AS D.price < {limit} AND (D.price < LAST(D.price, 1) OR (LAST(D.price, 1) IS NULL AND D.price < S.price)),
         U AS U.price > LAST(D.price)
)
"""
MEASURES = "S.price AS highest, LAST(D.price) AS lowest, COUNT(D.price) AS falls"
FALLS_BY_MINUTE = """
SELECT window_start, COUNT(*) AS n, SUM(falls) AS falls FROM TABLE(TUMBLE(TABLE falls, DESCRIPTOR(ended), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end
"""


def job(*queries: str):
    """A job with an output for each query, or of one."""

    def build(env, prices):
        strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(2000).with_timestamp_assigner(lambda price, _: price.ts)
        stream = env.from_source(prices, strategy, "prices").uid("prices").map(lambda price: price, Price)
        tables = fp.StreamTableEnvironment.create(env)
        schema = fp.Schema.new_builder().watermark("ts", "SOURCE_WATERMARK()").build()
        tables.create_temporary_view("prices", stream, schema)
        if "falls," in queries[0]:
            pattern = FALLS.format(measures=f"{MEASURES}, MATCH_ROWTIME() AS ended", limit=1000)
            tables.execute_sql(f"CREATE TEMPORARY VIEW falls AS {pattern}")
        found = {query: tables.to_data_stream(tables.sql_query(query)).map(tuple) for query in queries}
        return found if len(queries) > 1 else {"found": found[queries[0]]}

    return build


PRICES = [
    Price("a", 30, 1, at(0)),
    Price("b", 9, 1, at(1)),
    Price("a", 10, 2, at(4)),
    Price("a", 20, 3, at(2)),  # out of order
    Price("b", 8, 1, at(5)),
    Price("b", 7, 1, at(8)),
    Eof(savepoint=True),
    Price("a", 40, 1, at(30)),
    Price("b", 9, 1, at(70)),
    Price("b", 9, 1, at(90)),
]


def changed(tmp_path: Path, new: str) -> list[tuple]:
    query = FALLS.format(measures=MEASURES, limit=1000)
    saved = run_local(job(query), PRICES, state_root=tmp_path, parallelism=2)
    assert saved.output == []
    return sorted(run_local(job(new), PRICES, state_root=tmp_path, job_name="later", restore=saved.savepoint).output)


def test_partial_matches_are_saved(tmp_path: Path) -> None:
    query = FALLS.format(measures=MEASURES, limit=1000)
    assert changed(tmp_path, query) == [("a", 30, 10, 2), ("b", 9, 7, 2)]


def test_measures_may_change_over_the_columns_that_are_there(tmp_path: Path) -> None:
    query = FALLS.format(measures="FIRST(D.price) AS first, U.price - S.price AS rise", limit=1000)
    assert changed(tmp_path, query) == [("a", 20, 10), ("b", 8, 0)]


@pytest.mark.parametrize(
    ("measures", "limit", "why"),
    [
        ("SUM(D.volume) AS volume", 1000, "the rows of its partial matches lack volume"),
        ("PREV(S.price) AS p", 1000, r"the rows of its partial matches lack PREV\(price, 1\)"),
        (MEASURES, 15, "its partial matches are of another pattern, or of other conditions"),
    ],
)
def test_other_changes_are_refused(measures: str, limit: int, why: str, tmp_path: Path) -> None:
    with pytest.raises(RestoreRefused, match=why):
        changed(tmp_path, FALLS.format(measures=measures, limit=limit))


def test_the_time_of_a_match_is_event_time() -> None:
    found = run_local(job(FALLS_BY_MINUTE), [price for price in PRICES if isinstance(price, Price)]).output
    assert sorted(found) == [(at(0).replace(tzinfo=None), 1, 2), (at(60).replace(tzinfo=None), 1, 2)]


def test_the_row_before_is_one_of_the_match() -> None:
    query = """
    SELECT * FROM prices MATCH_RECOGNIZE (
      PARTITION BY symbol ORDER BY ts
      MEASURES LAST(D.price) AS lowest, PREV(D.price) AS d1, PREV(price, 2) AS p2, PREV(S.price + 0, 0) AS s, COUNT(D.price) AS n
      AFTER MATCH SKIP PAST LAST ROW
      PATTERN (S D+ U) DEFINE D AS D.price < PREV(D.price), U AS U.price > PREV(U.price) AND PREV(U.price, 2) < 50
    )
    """
    found = run_local(job(query), [price for price in PRICES if isinstance(price, Price)]).output
    assert sorted(found) == [("a", 10, 20, 20, 30, 2), ("b", 7, 8, 8, 9, 2)]


def test_conditions_look_at_the_rows_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    elements = KeyEvents.elements
    monkeypatch.setattr(KeyEvents, "elements", lambda self, numbers: read.append(len(numbers)) or elements(self, numbers))
    query = """
    SELECT * FROM prices MATCH_RECOGNIZE (
      PARTITION BY symbol ORDER BY ts
      MEASURES FIRST(D.price) AS first, LAST(D.price) AS last, COUNT(D.price) AS n
      AFTER MATCH SKIP PAST LAST ROW
      PATTERN (S D+ U) DEFINE D AS D.price < PREV(D.price) AND D.price < S.price AND (D.price < FIRST(D.price, 2) OR TRUE),
                              U AS U.price > LAST(D.price)
    )
    """
    found = run_local(job(query), [Price("a", 100 - n, 1, at(n)) for n in range(60)] + [Price("a", 99, 1, at(60))]).output
    assert found == [("a", 99, 41, 59)]
    assert sum(read) < 5 * 60 * 60  # of 1800 partial matches with 20 rows on average


def test_rows_that_are_excluded_are_in_measures_only() -> None:
    measures = "SUM(price) AS total, COUNT(D.price) AS falls"
    query = FALLS.format(measures=measures, limit=1000).replace("(S D+ U)", "(S {- D -}+ U)")
    all_rows = query.replace("AFTER MATCH", "ALL ROWS PER MATCH AFTER MATCH")
    found = run_local(job(query, all_rows), [price for price in PRICES if isinstance(price, Price)]).records
    assert sorted(record.value for record in found[query]) == [("a", 100, 2), ("b", 33, 2)]
    of_a = [record.value[2:5] for record in found[all_rows] if record.value[0] == "a"]
    assert of_a == [(30, 0, 30), (100, 2, 40)]


def test_all_rows_of_a_match() -> None:
    measures = "CLASSIFIER() AS is, SUM(price) AS total, FINAL LAST(D.price) AS lowest, COUNT(D.price) AS falls"
    query = FALLS.format(measures=f"{measures}, MATCH_ROWTIME() AS ended", limit=1000).replace(
        "AFTER MATCH", "ALL ROWS PER MATCH AFTER MATCH"
    )
    found = run_local(job(query), [price for price in PRICES if isinstance(price, Price)], parallelism=2).output
    of = {key: [row[1:] for row in found if row[0] == key] for key in "ab"}
    assert of["a"] == [
        (at(0), "S", 30, 10, 0, at(30), 30, 1),
        (at(2), "D", 50, 10, 1, at(30), 20, 3),
        (at(4), "D", 60, 10, 2, at(30), 10, 2),
        (at(30), "U", 100, 10, 2, at(30), 40, 1),
    ]
    assert [(row[0], *row[1:3], row[4]) for row in of["b"]] == [
        (at(1), "S", 9, 0),
        (at(5), "D", 17, 1),
        (at(8), "D", 24, 2),
        (at(70), "U", 33, 2),
    ]


def test_fields_of_rows_and_nested_results() -> None:
    query = """
    SELECT * FROM (
      SELECT symbol, ts, price, ROW(price, ROW(volume)) AS r, MAP['v', volume] AS m FROM prices
    ) MATCH_RECOGNIZE (
      PARTITION BY symbol ORDER BY ts
      MEASURES B.r.`EXPR$0` AS b, LAST(r.`EXPR$1`.`EXPR$0`) AS v, SUM(A.r.`EXPR$0`) AS s, (B.r).`EXPR$0` AS b2,
        COLLECT(price) AS c, LAST_VALUE(m) AS m, CARDINALITY(ARRAY_AGG(r)) AS n
      PATTERN (A B) DEFINE B AS B.r.`EXPR$0` > A.r.`EXPR$0` AND (B.r).`EXPR$0` > 30 AND MAX(r.`EXPR$0`) > 30
    )
    """
    found = run_local(job(query), [Price("a", 30, 1, at(0)), Price("a", 40, 2, at(9))]).output
    assert found == [("a", 40, 2, 30, 40, {30: 1, 40: 1}, {"v": 2}, 2)]


RISES = """
SELECT * FROM prices MATCH_RECOGNIZE (
  PARTITION BY symbol ORDER BY ts
  MEASURES {measures}
  {output} AFTER MATCH SKIP PAST LAST ROW
  PATTERN (L H) DEFINE H AS H.price > L.price
)
"""


def prices(symbols: str, values: list[int], start: int = 0) -> list[Price]:
    """The prices of each symbol in turn, a second apart."""
    each = [(symbol, value) for value in values for symbol in symbols]
    return [Price(symbol, value, 1, at(start + second)) for second, (symbol, value) in enumerate(each)]


def test_matches_are_numbered_in_their_partition_also_after_a_savepoint(tmp_path: Path) -> None:
    query = RISES.format(measures="MATCH_NUMBER() AS n, H.price AS high", output="")
    whole = [*prices("ab", [1, 2, 3, 4, 1]), *prices("a", [6, 7, 8], 20)]
    assert sorted(run_local(job(query), whole).output) == [
        ("a", 1, 2),
        ("a", 2, 4),
        ("a", 3, 6),
        ("a", 4, 8),
        ("b", 1, 2),
        ("b", 2, 4),
    ]
    script = [*whole[:9], Eof(savepoint=True), *whole[9:]]
    saved = run_local(job(query), script, state_root=tmp_path, parallelism=2, epochs=3)
    rest = run_local(job(query), script, state_root=tmp_path, job_name="later", restore=saved.savepoint)
    assert sorted([*saved.output, *rest.output]) == sorted(run_local(job(query), whole).output)
    of_rows = RISES.format(measures="MATCH_NUMBER() AS n", output="ALL ROWS PER MATCH")
    found = run_local(job(of_rows), prices("a", [1, 2, 0, 3, 4])).output
    assert [(row[2], row[3]) for row in found] == [(1, 1), (1, 2), (2, 0), (2, 3)]
    uncounted = run_local(job(RISES.format(measures="H.price AS high", output="")), script, state_root=tmp_path, job_name="other")
    with pytest.raises(RestoreRefused, match=r"MATCH_NUMBER\(\) is not known"):
        run_local(job(query), script, state_root=tmp_path, job_name="refused", restore=uncounted.savepoint)
    run_local(
        job(RISES.format(measures="H.price AS high", output="")),
        script,
        state_root=tmp_path,
        restore=saved.savepoint,
        job_name="fewer",
    )


LOW_HIGH = "L AS L.price < 3, H AS H.price > 6, M AS M.price BETWEEN 3 AND 6"
STANDARD = {  # for prices 5 1 4 8 2 9 9 3 5 1 of each symbol: clauses of MATCH_RECOGNIZE, and the prices in its matches
    f"PATTERN (L | H) DEFINE {LOW_HIGH}": ["1", "8", "2", "9", "9", "1"],
    f"PATTERN (M (L | H) M) DEFINE {LOW_HIGH}": ["514"],
    f"PATTERN (L (M H | I) L) DEFINE {LOW_HIGH}, I AS I.price > 8": ["1482"],
    f"PATTERN (L M H L | L M) DEFINE {LOW_HIGH}": ["14"],  # ends first
    f"PATTERN (H (L | I)+ M) DEFINE {LOW_HIGH}, I AS I.price > 6": ["82993"],
    # As greedy as X+ with X AS L OR H: what follows is no such row.
    f"PATTERN (M (L | H)+ X) DEFINE {LOW_HIGH}, X AS X.price < 5": ["514"],
    f"PATTERN (M (L | H)+? X) DEFINE {LOW_HIGH}, X AS X.price < 5": ["514"],
    f"PATTERN ((L | H)+ X) DEFINE {LOW_HIGH}, X AS X.price < 5": ["14", "82993"],
    f"PATTERN ((L | H)+? X) DEFINE {LOW_HIGH}, X AS X.price < 5": ["14", "82", "993"],
    f"PATTERN (PERMUTE(L, M, H)) DEFINE {LOW_HIGH}": ["148"],
    f"PATTERN (L M H | L H M | M L H | M H L | H L M | H M L) DEFINE {LOW_HIGH}": ["148"],
    f"PATTERN (S permute (L, H)) DEFINE {LOW_HIGH}": ["482"],
    f"PATTERN (PERMUTE(M+, L) X) DEFINE {LOW_HIGH}": ["514"],
    f"PATTERN (L {{- M H -}} L) DEFINE {LOW_HIGH}": ["12"],
    f"PATTERN ({{- H -}} ({{-L | I-}})+ M) DEFINE {LOW_HIGH}, I AS I.price > 6": ["3"],
    f"PATTERN (H {{- L? -}}{{1,2}} M) DEFINE {LOW_HIGH}": ["93"],
    f"PATTERN ((L{{2}} H) X) DEFINE {LOW_HIGH}": [],  # nothing comes between the rows of a group
    "PATTERN (S (B | A)) DEFINE A AS A.price > S.price + 3, B AS B.price > PREV(B.price) AND A.price > 0": ["48", "29"],
}


def matched_prices(found: list[tuple], symbol: str) -> list[str]:
    """The prices of each match. A row has its symbol, the number of the match, and then its time, …, its price."""
    rows = [row for row in found if row[0] == symbol]
    of_match = (
        "".join(str(row[PRICE]) for row in rows if row[NUMBER] == number) for number in sorted({row[NUMBER] for row in rows})
    )
    return list(of_match)


def test_patterns_of_the_standard_match_also_across_a_savepoint(tmp_path: Path) -> None:
    queries = {
        "SELECT * FROM prices MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts MEASURES MATCH_NUMBER() AS n ALL ROWS PER MATCH "
        f"AFTER MATCH SKIP PAST LAST ROW {clauses})": wanted
        for clauses, wanted in STANDARD.items()
    }
    rows = prices("ab", [5, 1, 4, 8, 2, 9, 9, 3, 5, 1])
    script = [*rows[:11], Eof(savepoint=True), *rows[11:]]
    before = run_local(job(*queries), script, state_root=tmp_path, parallelism=2, epochs=3)
    after = run_local(job(*queries), script, state_root=tmp_path, job_name="later", restore=before.savepoint)
    for query, wanted in queries.items():
        found = [record.value for run in (before, after) for record in run.records[query]]
        assert [matched_prices(found, symbol) for symbol in "ab"] == [wanted, wanted], query


EARLIER = """
SELECT * FROM prices MATCH_RECOGNIZE (
  PARTITION BY symbol ORDER BY ts, volume
  MEASURES A.price AS a, PREV(A.price) AS p1, PREV(A.price + 1, 3) AS p3, PREV(volume, 2) AS v, MATCH_NUMBER() AS n
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A B?? C) DEFINE A AS A.price > PREV(A.price), C AS C.price <= COALESCE(PREV(A.price, 2), 2)
)
"""

FEWER = EARLIER.replace("PREV(A.price + 1, 3) AS p3, ", "")


def with_earlier(rows: list[Price]) -> list[tuple]:
    """What EARLIER finds in one partition."""
    found, at = [], 0
    ordered = sorted(rows, key=lambda row: (row.ts, row.volume))
    before = [None, None, None, *ordered]  # of row i: before[i + 3 - n]

    def price(of: Price | None) -> int | None:
        return None if of is None else of.price

    while at < len(ordered):
        last, two = price(before[at + 2]), price(before[at + 1])
        begins = last is not None and ordered[at].price > last
        ends = [c for c in (at + 1, at + 2) if c < len(ordered) and ordered[c].price <= (2 if two is None else two)]
        if begins and ends:
            three = price(before[at])
            p3 = None if three is None else three + 1
            found.append((ordered[at].symbol, ordered[at].price, last, p3, before[ends[0] + 1].volume, len(found) + 1))
        at = ends[0] + 1 if begins and ends else at + 1
    return found


@examples(20)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.sampled_from([0, 1, 1, 2])), min_size=4, max_size=30),
    st.data(),
)
def test_rows_before_a_match_are_read_also_across_a_savepoint(
    given_rows: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    rows, now = [], 0
    for number, (symbol, price, step) in enumerate(given_rows):
        now += step
        rows.append(Price(symbol, price, number * 7 % 30, at(now)))
    cut, parallelism = data.draw(st.integers(1, len(rows) - 1)), data.draw(st.integers(1, 3))
    script = [*rows[:cut], Eof(savepoint=True), *rows[cut:]]
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        before = run_local(job(EARLIER), script, state_root=one, parallelism=parallelism, epochs=3)
        after = run_local(job(FEWER), script, state_root=two, restore=before.savepoint, epochs=3)
    for symbol in "ab":
        wanted = with_earlier([row for row in rows if row.symbol == symbol])
        first, rest = ([row for row in run.output if row[0] == symbol] for run in (before, after))
        assert [*first, *rest] == [*wanted[: len(first)], *(row[:3] + row[4:] for row in wanted[len(first) :])]


def test_explain_shows_alternatives() -> None:
    tables = fp.TableEnvironment.create(fp.EnvironmentSettings.in_streaming_mode())
    tables.execute_sql("CREATE TABLE prices (price INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen')")
    pattern = "PATTERN (S (A | B C)+ (D | E)) DEFINE A AS TRUE"
    pattern = pattern.replace("D | E", "D | E | PERMUTE(F, G? H)")
    pattern = pattern.replace("S (", "{- S X -} (")
    shown = tables.explain_sql(f"SELECT * FROM prices MATCH_RECOGNIZE (ORDER BY ts ALL ROWS PER MATCH {pattern})")
    assert "Match (S X) (A | (B C))+ (D | E | PERMUTE(F, (G? H))), without the rows of S, X" in shown


BEGIN = "SELECT * FROM prices MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts MEASURES A.price AS p "


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (f"{BEGIN}PATTERN (A+) DEFINE A AS A.price > 1)", r"the last variable, A\+, is greedy"),
        (f"{BEGIN}PATTERN (A B+ C?) DEFINE A AS A.price > 1)", r"the last variable, B\+, is greedy"),
        (f"{BEGIN}PATTERN (A (B C+)) DEFINE A AS A.price > 1)", r"the last variable, C\+, is greedy"),
        (f"{BEGIN}PATTERN (A* B?) DEFINE A AS A.price > 1)", "can match no rows"),
        (f"{BEGIN}PATTERN ((A? B*)+ C) DEFINE A AS A.price > 1)", "repeats, but may have no rows"),
        (f"{BEGIN}PATTERN (A (B* | C) D) DEFINE A AS A.price > 1)", r"the alternative B\* may have no rows; make it necessary"),
        (f"{BEGIN}PATTERN ((A (B C | D?)) E) DEFINE A AS A.price > 1)", r"the alternative D\? may have no rows"),
        (f"{BEGIN}PATTERN (A (B C+ | D)) DEFINE A AS A.price > 1)", r"the last variable, C\+, is greedy"),
        (f"{BEGIN}PATTERN (PERMUTE(A, B, C, D, E, F, G)) DEFINE A AS A.price > 1)", "PERMUTE takes at most 6 variables"),
        (f"{BEGIN}PATTERN (PERMUTE(A, )) DEFINE A AS A.price > 1)", "expected a variable in PATTERN"),
        (f"{BEGIN}PATTERN (PERMUTE(A, B+)) DEFINE A AS A.price > 1)", r"the last variable, B\+, is greedy"),
        (f"{BEGIN}PATTERN (A (B |) D) DEFINE A AS A.price > 1)", "expected a variable in PATTERN"),
        (f"{BEGIN}PATTERN (A {{- B - C) DEFINE A AS A.price > 1)", "expected a variable in PATTERN, not '- C'"),
        (f"{BEGIN}PATTERN (A {{- -}} C) DEFINE A AS A.price > 1)", "expected a variable in PATTERN, not '-} C'"),
        (f"{BEGIN}PATTERN (A{{}} B) DEFINE A AS A.price > 1)", "needs a number"),
        (f"{BEGIN}PATTERN (A{{3,2}} B) DEFINE A AS A.price > 1)", "no number of rows"),
        (f"{BEGIN}PATTERN (A {{- B -}} B) DEFINE A AS A.price > 1)", "variable 'B' is also outside"),
        (f"{BEGIN}PATTERN (A B) DEFINE a AS A.price > 1)", "did you mean 'A'"),
        (f"{BEGIN}PATTERN (A B) DEFINE A AS A.prise > 1)", "did you mean 'price'"),
        (f"{BEGIN}PATTERN (A B) DEFINE A AS C.price > 1)", "PATTERN has no variable 'C'"),
        (f"{BEGIN}PATTERN (A B) DEFINE A AS A.price)", "takes a condition, not BIGINT"),
        (f"{BEGIN}PATTERN (A B) DEFINE A AS A.price > NEXT(A.price))", "write a variable for the next row"),
        (f"{BEGIN}PATTERN (A B) DEFINE B AS MATCH_NUMBER() > 1)", "is for MEASURES"),
        (f"{BEGIN}PATTERN (A B) DEFINE A AS A.price > 1, A AS A.price > 2)", "defined twice"),
        (f"{BEGIN}AFTER MATCH SKIP TO C PATTERN (A B) DEFINE A AS A.price > 1)", "PATTERN has no such variable"),
        (
            f"{BEGIN}AFTER MATCH SKIP TO Z PATTERN (A B) SUBSET Z = (A, B) DEFINE A AS A.price > 1)",
            "PATTERN has no such variable",
        ),
        (f"{BEGIN}AFTER MATCH SKIP TO FIRST A PATTERN (A B) DEFINE A AS A.price > 1)", "every match begins with A"),
        (f"{BEGIN}PATTERN (A B) SUBSET Z = (A, B), Y = (Z) DEFINE A AS A.price > 1)", "SUBSET Y: 'Z' is no variable of PATTERN"),
        (f"{BEGIN}, CLASSIFIER(A) AS c PATTERN (A B) DEFINE A AS A.price > 1)", r"CLASSIFIER\(\) takes no variable"),
        (f"{BEGIN}, price - FINAL SUM(price) AS c PATTERN (A B) DEFINE A AS A.price > 1)", "FINAL is for one call"),
        (f"{BEGIN}, A.prise.x AS c PATTERN (A B) DEFINE A AS A.price > 1)", "did you mean 'price'"),
        (f"{BEGIN}AFTER MATCH SKIP BACK PATTERN (A B) DEFINE A AS A.price > 1)", "expected AFTER MATCH SKIP"),
        (f"{BEGIN}PATTERN (A B) WITHIN INTERVAL '1' MONTH DEFINE A AS A.price > 1)", "whole milliseconds"),
        (f"{BEGIN}ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A B) DEFINE A AS A.price > 1)", "and nothing after it"),
        (f"{BEGIN}, 2 AS volume ALL ROWS PER MATCH PATTERN (A B) DEFINE A AS A.price > 1)", "two columns 'volume'"),
        (
            f"{BEGIN}, FINAL 1 + LAST(A.price) AS l ALL ROWS PER MATCH PATTERN (A B) DEFINE A AS A.price > 1)",
            "FINAL is for one call",
        ),
        (f"{BEGIN}, B.price AS p PATTERN (A B) DEFINE A AS A.price > 1)", "two columns 'p'"),
        (f"{BEGIN}DEFINE A AS A.price > 1)", "needs PATTERN"),
        (BEGIN.replace("ORDER BY ts", "ORDER BY price") + "PATTERN (A B) DEFINE A AS A.price > 1)", "starts with event time"),
        (BEGIN.replace("ORDER BY ts", "ORDER BY ts DESC") + "PATTERN (A B) DEFINE A AS A.price > 1)", "starts with event time"),
        (BEGIN.replace("BY symbol", "BY simbol") + "PATTERN (A B) DEFINE A AS A.price > 1)", "did you mean 'symbol'"),
        (
            BEGIN.replace("A.price AS p", "A.price + B.price * 2 AS p, A.price") + "PATTERN (A B) DEFINE A AS TRUE)",
            "a measure has a name",
        ),
        (BEGIN.replace("A.price", "FIRST(A.price + B.price)") + "PATTERN (A B) DEFINE A AS TRUE)", "of several variables"),
        (
            "SELECT * FROM (SELECT symbol, COUNT(*) AS n FROM prices GROUP BY symbol) MATCH_RECOGNIZE (ORDER BY n "
            "MEASURES A.n AS p PATTERN (A B) DEFINE A AS A.n > 1)",
            "takes rows that are only added",
        ),
    ],
)
def test_mistakes_are_refused_at_their_place(query: str, problem: str) -> None:
    with pytest.raises(SqlError, match=problem) as refused:
        run_local(job(query), [])
    assert "line 1, column" in str(refused.value)
    assert "^" in str(refused.value)
