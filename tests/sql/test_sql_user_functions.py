"""Functions in Python: what a query with them results in, how saved state knows them, and what of them is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sql_functions import ROWS, check_stored_form, environment, folded, run
from sql_results import Order, answered
from test_sql_recompute import replaced

import forkpoint as fp
from forkpoint.sql.errors import SqlError
from forkpoint.state_processor import SavepointReader
from forkpoint.testing import ABORT, EOF, PAUSE, Eof
from programs import ENVIRONMENT, run_python


class Slug(fp.ScalarFunction):
    def __init__(self, sign: str) -> None:
        self.sign = sign

    def open(self, function_context: fp.FunctionContext) -> None:
        self.calls = function_context.get_metric_group().counter("slugs")
        self.ends = function_context.get_job_parameter("ends", "")

    def eval(self, text: str | None, *numbers: int) -> str | None:
        self.calls.inc()
        return None if text is None else self.sign.join([text, *map(str, numbers)]) + self.ends


def plus(a: int | None, b: int = 1) -> int:
    return None if a is None else a + b  # type: ignore[return-value]


def inverse(v: int) -> float:
    return 1 / v


FUNCTIONS: dict[str, Any] = {
    "plus": plus,
    "slug": fp.udf(Slug("-"), result_type="STRING"),
    "pair": fp.udf(lambda a, b: (a, b), input_types=["BIGINT", "STRING"], result_type="ROW<a BIGINT, b STRING>"),
    "half": fp.udf(lambda x: x / 2, result_type="DOUBLE", func_type="pandas"),
    "twice": fp.udf(lambda v: pc.multiply(v, 2), result_type=fp.DataTypes.BIGINT(), func_type="arrow"),
    "inverse": inverse,
    "isum": fp.udf(partial(lambda a, b: a + b, 100), input_types=[fp.DataTypes.BIGINT()], result_type=fp.DataTypes.BIGINT()),
}


# What DuckDB computes without Python.
EQUAL = [
    ("SELECT plus(v), plus(v, 2), slug(k, 1, 2), pair(v, k).a, pair(v, k).b, twice(v), half(x), plus(2), isum(COALESCE(v, 0)) "
     "FROM orders",
     "SELECT v + 1, v + 2, k || '-1-2', v, k, v * 2, x / 2, 3, COALESCE(v, 0) + 100 FROM orders"),
    ("SELECT plus(v) AS p, slug(MAX(k)), COUNT(*), SUM(plus(g)) FROM orders WHERE twice(v) < 20 GROUP BY plus(v) "
     "HAVING plus(COUNT(*), -1) > 0",
     "SELECT v + 1 AS p, MAX(k), COUNT(*), SUM(g + 1) FROM orders WHERE v * 2 < 20 GROUP BY p HAVING COUNT(*) > 1"),
    ("SELECT a.k, b.v FROM orders AS a JOIN orders AS b ON plus(a.g) = plus(b.v) AND slug(a.k) = slug(b.k) AND half(b.x) < 9",
     "SELECT a.k, b.v FROM orders AS a JOIN orders AS b ON a.g = b.v AND a.k = b.k AND b.x < 18"),
    ("SELECT a.v, plus(b.s) FROM orders AS a LEFT JOIN (SELECT g, plus(SUM(v)) AS s FROM orders GROUP BY g) AS b "
     "ON a.v = b.g AND plus(b.s) > a.v",
     "SELECT a.v, b.s + 1 FROM orders AS a LEFT JOIN (SELECT g, SUM(v) + 1 AS s FROM orders GROUP BY g) AS b "
     "ON a.v = b.g AND b.s + 1 > a.v"),
    ("SELECT CASE WHEN v <> 0 THEN inverse(v) END, v IS NULL OR v = 0 OR inverse(v) < 5 FROM orders",
     "SELECT 1 / NULLIF(v, 0), TRUE FROM orders"),
    ("SELECT plus(MAX(plus(v)) OVER (PARTITION BY slug(k) ORDER BY plus(g), v, x)) FROM orders",
     "SELECT MAX(v + 1) OVER (PARTITION BY k ORDER BY g NULLS FIRST, v NULLS FIRST, x NULLS FIRST) + 1 FROM orders"),
    ("SELECT v, (SELECT plus(MAX(b.v)) FROM orders AS b WHERE b.g = a.v) FROM orders AS a",
     "SELECT v, (SELECT MAX(b.v) + 1 FROM orders AS b WHERE b.g = a.v) FROM orders AS a"),
    ("SELECT DISTINCT slug(k) FROM orders WHERE plus(g) IN (SELECT plus(v) FROM orders)",
     "SELECT DISTINCT k FROM orders WHERE g IN (SELECT v FROM orders)"),
]  # fmt: skip


@settings(max_examples=4, deadline=None)
@given(ROWS, st.integers(1, 7), st.sampled_from([1, 2]), st.randoms())
def test_queries_with_functions_have_duckdbs_answer(rows: list[Order], epoch_rows: int, parallelism: int, random: Any) -> None:
    query, without = random.choice(EQUAL)
    tables = environment(rows * 10, FUNCTIONS, epoch_rows=epoch_rows * 10, parallelism=parallelism)
    assert folded(tables, query) == answered(without, rows * 10)


@pytest.mark.parametrize("at", range(len(EQUAL)))
def test_each_query_with_functions(at: int) -> None:
    rows = [Order(k, g, v, x) for k in ("a", None) for g in (0, 1, None) for v in (0, 2, None) for x in (0.5, None)]
    assert folded(environment(rows, FUNCTIONS, epoch_rows=7), EQUAL[at][0]) == answered(EQUAL[at][1], rows)


class Values(NamedTuple):
    a: bool | None
    b: int | None
    c: float | None
    d: str | None
    e: bytes | None
    f: date | None
    g: time | None
    h: datetime | None
    i: fp.Instant | None
    j: list[int] | None
    k: dict[str, float] | None
    l: Decimal | None  # noqa: E741


GIVEN = Values(
    True, 2**62 + 1, 0.5, "ä", b"\0", date(2020, 1, 2), time(1, 2, 3),
    datetime(2020, 1, 2, 3),  # noqa: DTZ001
    datetime(2020, 1, 2, tzinfo=UTC), [1], {"k": 1.5}, Decimal("1.25"),
)  # fmt: skip
TYPES = [
    *("BOOLEAN", "BIGINT", "DOUBLE", "STRING", "BYTES", "DATE", "TIME", "TIMESTAMP(3)", "TIMESTAMP_LTZ(3)"),
    *("ARRAY<BIGINT>", "MAP<STRING, DOUBLE>", "DECIMAL(38, 18)"),
]


@pytest.mark.parametrize("form", ["general", "arrow", "pandas"])
def test_values_pass_unchanged(form: Any) -> None:
    """Also NULLs beside large integers, which pandas' floats have no digits for."""
    rows = [GIVEN, Values(*[None] * len(GIVEN))]
    tables = environment(rows, {}, Values)
    columns = [name for name in Values._fields if form != "pandas" or name != "k"]  # pandas has lists of pairs for a MAP
    for name, of in zip(Values._fields, TYPES, strict=True):
        tables.create_temporary_function(f"same_{name}", fp.udf(lambda x: x, result_type=of, func_type=form))
    query = f"SELECT {', '.join(f'same_{name}({name})' for name in columns)} FROM orders"
    found = [tuple(row) for row in tables.execute_sql(query).collect()]
    assert found == [tuple(getattr(row, name) for name in columns) for row in rows]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (fp.udf(lambda v: 1 // v, result_type="INT"), r"function f raised ZeroDiv.*\(arguments \(0,\)\)\n.*test_sql"),
        (fp.udf(lambda v: "x", result_type="INT"), "function f has the result type INT, but returned 'x' is not a value of INT"),
        (fp.udf(lambda v: None, result_type="INT NOT NULL"), "function f has the result type INT NOT NULL, but returned None"),
        (fp.udf(lambda v: v[:0], result_type="INT", func_type="pandas"), "The result length '0' of Pandas UDF 'f' is not "),
        (fp.udf(lambda v: v.iloc[0], result_type="INT", func_type="pandas"), "The result type of Pandas UDF 'f' must be pandas"),
        (fp.udf(lambda v: v * 1.5, result_type="INT", func_type="pandas"), None),
        (fp.udf(lambda v: [1], result_type="INT", func_type="arrow"), "function f must return an Arrow array, not \\[1\\]"),
    ],
)  # fmt: skip
def test_an_error_names_the_function_and_its_arguments(function: Any, message: str | None) -> None:
    tables = environment([Order("a", 1, 0, 1.0)], {})
    tables.create_temporary_function("f", function)
    result = tables.execute_sql("SELECT f(v) FROM orders")
    if message is None:
        assert [tuple(row) for row in result.collect()] == [(0,)]
        return
    with pytest.raises(fp.UserFunctionError, match=f"(?s)operator 'select': {message}"):
        list(result.collect())


def f(v: int) -> int:
    return v


# ^ is below the first sign of what is wrong.
MISTAKES = [
    ("SELECT f(v, 1) FROM orders", "       ^", "f takes 1 arguments, not 2"),
    ("SELECT g(k) FROM orders", "       ^", "g takes BIGINT as argument 1, not STRING; CAST it"),
    ("SELECT COUNT(*), ff(k) FROM orders", "                 ^", "there is no function FF; did you mean 'F'?"),
    ("SELECT db.f(k) FROM orders", "       ^", "there is no function db.F"),
    (
        "CREATE FUNCTION f AS 'sql_results.folded' LANGUAGE PYTHON",
        " " * 16 + "^",
        "there already is a function 'f'; drop it first",
    ),
    ("CREATE FUNCTION h AS 'sql_results.foldd' LANGUAGE PYTHON", " " * 21 + "^", "'sql_results.foldd' cannot be imported"),
    ("CREATE FUNCTION h AS 'folded' LANGUAGE PYTHON", " " * 21 + "^", "'folded' is no function's name; write 'module.function'"),
    (
        "CREATE FUNCTION h AS 'sql_results.Order' LANGUAGE PYTHON",
        " " * 16 + "^",
        "udf 'Order': it has no result type; give result_type",
    ),
    ("CREATE FUNCTION h AS 'com.acme.H' LANGUAGE JAVA", " " * 34 + "^", "functions are written in Python: add LANGUAGE PYTHON"),
    ("DROP FUNCTION ff", " " * 14 + "^", "there is no function 'ff'; did you mean 'f'?"),
    ("ALTER FUNCTION f AS 'x'", "^", "ALTER FUNCTION is not supported"),
]


@pytest.mark.parametrize(("text", "mark", "message"), MISTAKES)
def test_a_mistake_is_shown_where_it_is(text: str, mark: str, message: str) -> None:
    tables = environment([Order("a", 1, 0, 1.0)], {})
    tables.create_temporary_function("f", f)
    tables.create_temporary_function("g", fp.udf(f, input_types=["BIGINT"], result_type="BIGINT"))
    with pytest.raises(SqlError) as error:
        tables.execute_sql(text)
    first, line, below = str(error.value).split("\n")
    assert message in first
    assert below == f"  {mark}", line


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fp.udf(f, result_type="BIGIN"), "udf 'f': result_type: type, line 1, column 1: there is no type BIGIN"),
        (lambda: fp.udf(lambda v: v), "it has no result type; give result_type, as in @udf"),
        (lambda: fp.udf(Slug, result_type="STRING"), "udf 'Slug': Slug is a class; give an instance, Slug()"),
        (lambda: fp.udf(f, func_type="numpy"), "udf 'f': func_type is 'numpy'; give one of"),  # type: ignore[arg-type]
        (lambda: fp.udf(f, version="a b"), "udf 'f': version 'a b' has other signs than letters, digits and ._-"),
        (lambda: 5, "udf: 5 is neither a function nor a ScalarFunction"),
    ],
)
def test_a_function_is_checked_when_it_is_registered(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(fp.ConfigError, match=message):
        environment([], {}).create_temporary_function("h", make())


def test_names_of_functions() -> None:
    """They have no case; system functions precede SQL's own, which precede the others."""
    tables = environment([Order("a", 1, 2, 1.0)], FUNCTIONS)
    tables.create_temporary_function("upper", fp.udf(lambda k: "mine", result_type="STRING"))
    tables.create_temporary_system_function("Length", fp.udf(lambda *a: len(a), result_type="INT"))
    tables.create_temporary_function("in", fp.udf(lambda k: 5, result_type="INT"))
    tables.execute_sql("CREATE DATABASE db")
    tables.execute_sql("CREATE FUNCTION db.ident AS 'test_sql_user_functions.f' LANGUAGE PYTHON")
    query = "SELECT UPPER(k), `length`(k, k), LENGTH(k, 1, 2), db.Ident(v), default_database.upper(k), `in`(v) FROM orders "
    query += "WHERE v IN (1, 2)"
    assert folded(tables, query) == Counter([("A", 2, 3, 2, "mine", 5)])
    tables.execute_sql("CREATE TEMPORARY SYSTEM FUNCTION IF NOT EXISTS length AS 'test_sql_user_functions.f' LANGUAGE PYTHON")
    shown = [row[0] for row in tables.execute_sql("SHOW USER FUNCTIONS").collect()]
    assert shown == tables.list_user_defined_functions() == sorted([*FUNCTIONS, "in", "upper", "length", "db.ident"])
    assert {"db.ident", "UPPER"} < {row[0] for row in tables.execute_sql("SHOW FUNCTIONS").collect()}
    assert tables.drop_temporary_system_function("LENGTH")
    assert not tables.drop_temporary_function("length")
    tables.execute_sql("DROP FUNCTION IF EXISTS db.ident")
    assert "db.ident" not in tables.list_user_defined_functions()


class Number(fp.ScalarFunction):
    """Numbers its calls."""

    def open(self, function_context: fp.FunctionContext) -> None:
        self.calls = 0

    def eval(self, v: int | None) -> int:
        self.calls += 1
        return self.calls


NUMBERED = [
    ("SELECT n, n + 0 FROM (SELECT number(v) AS n FROM orders) AS o WHERE n > 0", lambda n, m: n == m, 8),
    ("SELECT number(v), number(v) + 1 FROM orders WHERE number(v) <= 4", lambda n, m: n + 1 == m, 4),
    ("SELECT number(v), 0 FROM orders WHERE v = 2", lambda n, m: n <= 4, 4),
    ("SELECT number(g), MAX(number(g)) FROM orders GROUP BY number(g)", lambda n, m: n == m, 8),
    ("SELECT a.n, b.m FROM (SELECT v, x, number(v) AS n FROM orders) AS a LEFT JOIN "
     "(SELECT number(v) AS m FROM orders WHERE v = 2) AS b ON a.n = b.m", lambda n, m: n == m if n <= 4 else m is None, 8),
    ("SELECT n, SUM(n) OVER (PARTITION BY number(v) ORDER BY n) FROM (SELECT v, number(v) AS n FROM orders) AS o",
     lambda n, m: n == m, 8),
    ("SELECT number(v), e FROM orders CROSS JOIN UNNEST(ARRAY[number(v)]) AS t (e)", lambda n, m: n == m, 8),
    ("SELECT p, q FROM (SELECT number(n) AS p, n AS q FROM (SELECT number(v) AS n FROM orders) AS o) AS p UNION ALL "
     "SELECT v, v FROM orders WHERE v > 5", lambda n, m: n == m, 8),
]  # fmt: skip


@pytest.mark.parametrize(("query", "expected", "count"), NUMBERED)
def test_a_row_has_one_result_of_a_function_that_is_not_deterministic(query: str, expected: Any, count: int) -> None:
    tables = environment([Order(k, g, v, None) for k in ("a", None) for g in (0, None) for v in (2, None)], {}, epoch_rows=3)
    tables.create_temporary_function("number", fp.udf(Number(), result_type="BIGINT", deterministic=False))
    found = folded(tables, query)
    assert found.total() == count
    assert all(expected(*row) for row in found), found
    check_stored_form(tables, query)


def test_computed_columns_call_functions() -> None:
    tables = environment([], {"number": fp.udf(Number(), result_type="BIGINT", deterministic=False), "plus": plus})
    stream = tables._session.env.from_collection([Order("a", 1, v, None) for v in (5, 6, 7)], Order)
    schema = fp.Schema.new_builder().column_by_expression("n", "number(v)").column_by_expression("w", "plus(v)").build()
    tables.create_temporary_view("numbered", stream, schema)
    assert folded(tables, "SELECT n, n + 0, w FROM numbered WHERE n > 1") == Counter([(2, 2, 7), (3, 3, 8)])


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a, b FROM (SELECT r.f AS a, r.g AS b, r FROM (SELECT pair(v) AS r FROM orders) AS p) q WHERE r.f = 2 AND b > 0",
        "SELECT pair(v).f, CASE WHEN pair(v).g = 3 THEN pair(v).g ELSE 3 END FROM orders WHERE v = 2 AND pair(v).f > 0",
    ],
)
def test_a_function_is_called_once_for_the_same_rows(query: str, tmp_path: Path) -> None:
    calls = tmp_path / "calls"

    def pair(v: int) -> tuple[int, int]:
        with calls.open("a") as file:
            file.write(f"{v}\n")
        return v, v + 1

    tables = environment([Order("a", 1, v, None) for v in (1, 2, 2, 3)], {})
    tables.create_temporary_function("pair", fp.udf(pair, result_type="ROW<f INT, g INT>"))
    assert folded(tables, query) == Counter({(2, 3): 2})
    numbers = list(map(int, calls.read_text().split()))
    assert numbers in ([1, 2, 2, 3], [2, 2, 2, 2]), "where a condition has ruled out rows"


@pytest.mark.parametrize(
    ("query", "mark", "message"),
    [
        ("SELECT k, u(SUM(v)) FROM orders GROUP BY k", " " * 10, "u is not deterministic, so it cannot be called for rows that"),
        ("SELECT a.k FROM orders a JOIN orders b ON u(a.v) = b.v", " " * 42, "u is not deterministic, so a join cannot compare"),
    ],
)
def test_a_function_that_is_not_deterministic_is_refused_for_rows_that_change(query: str, mark: str, message: str) -> None:
    tables = environment([], {})
    tables.create_temporary_function("u", fp.udf(f, deterministic=False))
    with pytest.raises(SqlError) as error:
        tables.execute_sql(query)
    assert message in str(error.value)
    assert str(error.value).endswith(f"\n  {mark}^")


# -- where functions are ----------------------------------------------------------------------------------------------

MODULE = """
import forkpoint as fp

class Scaled(fp.ScalarFunction):
    def eval(self, v: int) -> int:
        return v * 10

@fp.udf
def twice(v: int) -> int:
    return v * 2
"""
FILE = """
SET 'execution.engine' = 'local';
CREATE FUNCTION twice AS 'beside.twice' LANGUAGE PYTHON;
CREATE TEMPORARY SYSTEM FUNCTION scaled AS 'beside.Scaled' LANGUAGE PYTHON;
CREATE TABLE orders (v BIGINT, w AS twice(v)) WITH ('connector' = 'datagen', 'number-of-rows' = '3', 'fields.v.kind' = 'sequence',
    'fields.v.start' = '1', 'fields.v.end' = '3');
CREATE TABLE out (v BIGINT, w BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
INSERT INTO out SELECT w, scaled(v) FROM orders;
"""


@pytest.mark.parametrize("arguments", [["run", "app/app.sql"], ["sql", "-f", "app/app.sql", "-e", FILE.split(";\n")[-2]]])
def test_a_file_of_sql_has_functions_beside_it(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "beside.py").write_text(MODULE)
    (tmp_path / "app" / "app.sql").write_text(FILE)
    run_python(["-m", "forkpoint.cli", *arguments], cwd=tmp_path, env=ENVIRONMENT, check=True)
    lines = [line for file in (tmp_path / "out").glob("part-*") for line in file.read_text().splitlines()]
    assert sorted(lines) == ['{"v":2,"w":10}', '{"v":4,"w":20}', '{"v":6,"w":30}']


PROGRAM = """
import forkpoint as fp
from beside import Scaled, twice

@fp.udf(result_type="STRING", func_type="pandas")
def shown(v):
    return v.astype(str) + "!"

class Own(fp.ScalarFunction):
    def eval(self, v):
        return shown.name + str(v)

class Total(fp.SqlAggregateFunction):
    def create_accumulator(self):
        return 0

    def accumulate(self, accumulator, v):
        return accumulator + v

    def get_value(self, accumulator):
        return accumulator

class Counted(fp.KeyedProcessFunction):
    count = fp.ValueStateDescriptor("count", int)

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield value.v, self.count.value()

env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "spark"}).set_parallelism(2)
tables = fp.StreamTableEnvironment.create(env)
tables.create_temporary_view("numbers", env.from_collection([(1,), (2,)], fp.Types.ROW_NAMED(["v"], [fp.Types.LONG()])))
for name, function in {"twice": twice, "scaled": Scaled(), "shown": shown, "own": fp.udf(Own(), result_type="STRING"),
    "total": fp.udaf(Total(), accumulator_type="BIGINT", result_type="BIGINT"),
    "upto": fp.udtf(lambda v: range(v), result_types=["BIGINT"]),
    "counted": fp.ptf(Counted(), result_type="ROW<w BIGINT, n BIGINT>"),
}.items():
    tables.create_temporary_function(name, function)
query = "SELECT twice(v), MAX(scaled(v)), shown(MAX(v)), own(total(v)) FROM numbers GROUP BY twice(v)"
print(sorted(tuple(row) for row in tables.execute_sql(query).collect()))
query = "SELECT w, n, f0 FROM counted(TABLE numbers PARTITION BY v) AS c CROSS JOIN LATERAL TABLE(upto(w)) AS t"
print(sorted(tuple(row) for row in tables.execute_sql(query).collect()))
"""


# As PyFlink's documentation writes functions.
PYFLINK = """
import functools
from pyflink.common import Row
from pyflink.table import DataTypes, EnvironmentSettings, ListView, MapView, TableEnvironment
from pyflink.table.udf import AggregateFunction, FunctionContext, ScalarFunction, TableFunction, udaf, udf, udtf

class HashCode(ScalarFunction):
    def __init__(self):
        self.factor = 12
    def open(self, function_context: FunctionContext):
        self.counter = function_context.get_metric_group().counter("calls")
    def eval(self, s):
        self.counter.inc()
        return len(s) * self.factor

class CallableAdd(object):
    def __call__(self, i, j):
        return i + j

def partial_add(i, j, k):
    return i + j + k

@udf(result_type=DataTypes.BIGINT(), func_type="pandas")
def pandas_add(i, j):
    return i + j

class Split(TableFunction):
    def eval(self, string):
        for s in string.split(" "):
            yield s, len(s)

class WeightedAvg(AggregateFunction):
    def create_accumulator(self):
        return Row(0, 0)
    def get_value(self, accumulator):
        return None if accumulator[1] == 0 else accumulator[0] / accumulator[1]
    def accumulate(self, accumulator, value, weight):
        accumulator[0] += value * weight
        accumulator[1] += weight
    def retract(self, accumulator, value, weight):
        accumulator[0] -= value * weight
        accumulator[1] -= weight
    def get_result_type(self):
        return DataTypes.DOUBLE()
    def get_accumulator_type(self):
        return DataTypes.ROW([DataTypes.FIELD("f0", DataTypes.BIGINT()), DataTypes.FIELD("f1", DataTypes.BIGINT())])

class ListViewConcat(AggregateFunction):
    def get_value(self, accumulator):
        return accumulator[1].join(accumulator[0])
    def create_accumulator(self):
        return Row(ListView(), "")
    def accumulate(self, accumulator, *args):
        accumulator[1] = args[1]
        accumulator[0].add(args[0])
    def get_accumulator_type(self):
        words = DataTypes.LIST_VIEW(DataTypes.STRING())
        return DataTypes.ROW([DataTypes.FIELD("f0", words), DataTypes.FIELD("f1", DataTypes.STRING())])
    def get_result_type(self):
        return DataTypes.STRING()

class Occurrences(AggregateFunction):
    def create_accumulator(self):
        return Row(MapView())
    def accumulate(self, accumulator, value):
        counts = accumulator[0]
        counts.put(value, (counts[value] if counts.contains(value) else 0) + 1)
    def get_value(self, accumulator):
        return max(accumulator[0].values())

t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
t_env.get_config().set("parallelism.default", "1")
t_env.create_temporary_function("hash_code", udf(HashCode(), result_type=DataTypes.BIGINT()))
t_env.create_temporary_system_function("add", udf(CallableAdd(), result_type="BIGINT"))
add_lambda = udf(lambda i, j: i + j, [DataTypes.BIGINT(), DataTypes.BIGINT()], DataTypes.BIGINT())
t_env.create_temporary_function("add_lambda", add_lambda)
t_env.create_temporary_function("add_partial", udf(functools.partial(partial_add, k=1), result_type=DataTypes.BIGINT()))
t_env.create_temporary_function("pandas_add", pandas_add)
t_env.create_temporary_function("split", udtf(Split(), result_types=[DataTypes.STRING(), DataTypes.INT()]))
t_env.create_temporary_function("weighted_avg", udaf(WeightedAvg()))
t_env.create_temporary_function("concat_words", ListViewConcat())
of_map = DataTypes.ROW([DataTypes.FIELD("f0", DataTypes.MAP_VIEW(DataTypes.STRING(), DataTypes.INT()))])
t_env.create_temporary_function("most", udaf(Occurrences(), result_type=DataTypes.INT(), accumulator_type=of_map))
t_env.create_temporary_view("t", t_env.from_elements([(1, "hi you"), (3, "hi")], ["a", "b"]))
for query in (
    "SELECT hash_code(b), add(a, 1), add_lambda(a, a), add_partial(a, a), pandas_add(a, 10) FROM t",
    "SELECT a, word, length FROM t, LATERAL TABLE(split(b)) AS s(word, length)",
    "SELECT a, word FROM t LEFT JOIN LATERAL TABLE(split(b)) AS s(word, length) ON TRUE",
    "SELECT b, weighted_avg(n, n) FROM (SELECT b, a, COUNT(*) AS n FROM t GROUP BY a, b) AS c GROUP BY b",
    "SELECT concat_words(word, ','), most(word) FROM t, LATERAL TABLE(split(b)) AS s(word, length)",
):
    print(sorted(tuple(row) for row in t_env.sql_query(query).execute().collect()))
"""


def test_functions_as_pyflink_writes_them(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PYFLINK)
    command = ["-m", "forkpoint.pyflink", str(tmp_path / "app.py")]
    done = run_python(command, capture_output=True, text=True, env={**ENVIRONMENT, "FORKPOINT_ENGINE": "local"}, check=True)
    assert done.stdout.splitlines() == [
        "[(24, 4, 6, 7, 13), (72, 2, 2, 3, 11)]",
        "[(1, 'hi', 2), (1, 'you', 3), (3, 'hi', 2)]",
        "[(1, 'hi'), (1, 'you'), (3, 'hi')]",
        "[('hi', 1.0), ('hi you', 1.0)]",
        "[('hi,you,hi', 2)]",
    ]


@pytest.mark.slow
@pytest.mark.spark
def test_functions_of_a_program_and_of_its_modules_reach_the_workers_of_spark(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text(MODULE)
    (tmp_path / "app.py").write_text(PROGRAM)
    done = run_python([str(tmp_path / "app.py")], capture_output=True, text=True, env=ENVIRONMENT, check=True)
    assert done.stdout.splitlines()[-2:] == [
        "[(2, 10, '1!', 'shown1'), (4, 20, '2!', 'shown2')]", "[(1, 1, 0), (2, 1, 0), (2, 1, 1)]",
    ]  # fmt: skip


# -- saved state -------------------------------------------------------------------------------------------------------


def version(number: str, body: Any = f) -> dict[str, Any]:
    """The function f in a version."""
    return {"f": fp.udf(body, result_type="BIGINT", version=number)}


FIRST = [Order("a", 1, 2, None), PAUSE, ABORT, Order("b", 2, 3, None), Order("a", 1, 3, None), PAUSE, EOF]
MORE = [*FIRST, Order("b", 2, 3, None), PAUSE, EOF]


def test_a_changed_query_has_the_difference_between_results_of_a_function(tmp_path: Path) -> None:
    """Removed rows have the results that were emitted."""
    assert run("SELECT k, SUM(f(v)) AS s FROM orders GROUP BY k", FIRST, tmp_path, version("1"))[-1] == ("a", 5, 1)
    assert run("SELECT k, f(SUM(f(v))) AS s, k AS l FROM orders GROUP BY k", MORE, tmp_path, version("1")) == [
        ("b", 3, None, -1), ("b", 6, "b", 1), ("a", 5, None, -1), ("a", 5, "a", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "changed", "message"),
    [
        ("SELECT f(v), COUNT(*) FROM orders GROUP BY f(v)", None, "f was version 1 and is version 2: it was grouped by f@1"),
        ("SELECT k, SUM(f(v)) FROM orders GROUP BY k", None, r"f was version 1 and is version 2: SUM\(f@2\(v\)\) cannot be"),
        ("SELECT k, f(SUM(v)) FROM orders GROUP BY k", None, "computed by function f, version 1, which is version 2 now"),
        (
            "SELECT k, f(SUM(v)) FROM orders GROUP BY k",
            "SELECT k, SUM(v) FROM orders GROUP BY k",
            "its result was computed by function f, version 1, which is version 2 now",
        ),
        ("SELECT a.k FROM orders AS a JOIN orders AS b ON f(a.v) > f(b.v)", None, "version 1, which is version 2 now"),
        ("SELECT k FROM orders WHERE f(v) > 1 GROUP BY k", None, "function f was version 1 and is version 2: its rows came from"),
    ],
)  # fmt: skip
def test_state_of_another_version_of_a_function_is_refused(query: str, changed: str | None, message: str, tmp_path: Path) -> None:
    run(query, FIRST, tmp_path, version("1"))
    run(
        query, [*FIRST, Order("c", 5, 5, None), PAUSE, EOF], tmp_path, version("1", lambda v: v)
    )  # the same version, the same meaning
    with pytest.raises(fp.RestoreRefused, match=message):
        run(changed or query, MORE, tmp_path, version("2"))


def test_state_of_another_version_can_be_computed_again(tmp_path: Path) -> None:
    """If the old version is below a group, its results are in the state; above it, it would have to be there."""
    script = [Order("a", 1, 2, None), Order("b", 2, 3, None), PAUSE, Eof(savepoint=True)]
    old, new = version("1"), version("2", lambda v: v % 2)
    for query, changes in (
        ("SELECT f(v) AS p, COUNT(*) AS n FROM orders GROUP BY f(v)", [(0, 1, 1), (1, 2, 1), (2, 1, -1), (3, 1, -1)]),
        ("SELECT k, f(SUM(v)) AS s FROM orders GROUP BY k", None),
    ):
        place = tmp_path / str(changes is None)
        run(query, script, place / "old", old)
        run(query, script, place / "new", new)
        readers = [SavepointReader.find(place / name, "test") for name in ("old", "new")]
        restored = replaced(*readers, place / "savepoint")
        more = [*script, Order("c", 1, 5, None), PAUSE, EOF]
        if changes is not None:
            assert sorted(run(query, more, place / "run", new, restored)) == changes
            continue
        with pytest.raises(fp.RestoreRefused, match="was computed by function f, version 1, which the program does not have"):
            run(query, more, place / "run", new, restored)


def test_a_function_that_is_not_called_any_more_is_needed_until_its_results_have_been_taken_back(tmp_path: Path) -> None:
    run("SELECT k, g(SUM(v)) AS s FROM orders GROUP BY k", FIRST, tmp_path, {"g": fp.udf(f)})
    with pytest.raises(fp.RestoreRefused, match="function g, version 1, which is not registered any more: register it, even if"):
        run("SELECT k, SUM(v) + 1 AS s FROM orders GROUP BY k", MORE, tmp_path, version("1"))
    assert run("SELECT k, SUM(v) + 1 AS s FROM orders GROUP BY k", MORE, tmp_path, {"g": fp.udf(f)}) == [
        ("b", 3, -1), ("b", 7, 1), ("a", 5, -1), ("a", 6, 1),
    ]  # fmt: skip
    run("SELECT k, SUM(v) + 1 AS s FROM orders GROUP BY k", MORE, tmp_path, version("1"))


def test_a_projection_takes_any_version(tmp_path: Path) -> None:
    run("SELECT f(v) AS w FROM orders WHERE f(v) > 0", FIRST, tmp_path, version("1"))
    assert run("SELECT f(v) AS w FROM orders WHERE f(v) > 0", MORE, tmp_path, version("2", lambda v: v + 1)) == [(4,)]
