"""Windows of a number of rows, in epochs of any size, against a model."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import forkpoint as fp
from forkpoint import Slide, Tumble, col, lit
from forkpoint.table.api import expressions as e
from forkpoint.testing import run_upgrade

ROWS = [(random.Random(n).choice(["a", "b", None]), n % 2, n) for n in range(40)]
OF = fp.Types.ROW_NAMED(["k", "g", "v"], [fp.Types.STRING(), fp.Types.INT(), fp.Types.INT()])


def environment(epoch_rows: int) -> tuple[fp.StreamTableEnvironment, fp.Table]:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_max_epoch_rows(epoch_rows)
    env.set_parallelism(2)
    t_env = fp.StreamTableEnvironment.create(env)
    t_env.create_temporary_view("t", env.from_collection(ROWS, OF))
    return t_env, t_env.sql_query("SELECT k, g, v, PROCTIME() AS p FROM t")


def expected(size: int, slide: int, keys: int) -> Counter[Any]:
    """The sums and first values of full windows, of rows with the same first ``keys`` columns."""
    by_key = defaultdict(list)
    for row in ROWS:
        by_key[row[:keys]].append(row[2])
    return Counter(
        (*key, sum(values[at : at + size]), values[at])
        for key, values in by_key.items()
        for at in range(0, len(values) - size + 1, slide)
    )


@pytest.mark.parametrize(("size", "slide", "epoch_rows"), [(3, 3, 4), (1, 1, 40), (4, 2, 1), (5, 3, 7), (2, 5, 3)])
def test_windows_of_rows(size: int, slide: int, epoch_rows: int, tmp_path: Path) -> None:
    """Each result is added once: a sink of files takes them."""
    t_env, table = environment(epoch_rows)
    rows = Slide.over(e.row_interval(size)).every(e.row_interval(slide)) if size != slide else Tumble.over(e.row_interval(size))
    window, statements = rows.on(col("p")).alias("w"), t_env.create_statement_set()
    for name in ("by_k", "by_all", "by_both"):
        keys = [col("k"), col("g")][: {"by_k": 1, "by_all": 0, "by_both": 2}[name]]
        columns = "".join(f"{key} {of}, " for key, of in zip("kg", ("STRING", "INT"), strict=True) if len(keys) > "kg".index(key))
        t_env.execute_sql(
            f"CREATE TABLE {name} ({columns}total INT, f INT) "
            f"WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{tmp_path}/{name}')"
        )
        grouped = table.window(window).group_by(col("w"), *keys)
        statements.add_insert(name, grouped.select(*keys, col("v").sum, col("v").first_value))
    statements.execute().wait()
    for name, count in (("by_k", 1), ("by_all", 0), ("by_both", 2)):
        lines = [line for file in (tmp_path / name).glob("part-*") for line in file.read_text().splitlines()]
        assert Counter(tuple(json.loads(line).values()) for line in lines) == expected(size, slide, count), name


def test_rows_may_have_nothing_but_their_key() -> None:
    """Windows that are only counted, and keep their start across epochs."""
    _, table = environment(3)
    window = Tumble.over(e.row_interval(4)).on(col("p")).alias("w")
    counts = table.select(col("g"), col("p")).window(window).group_by(col("w"), col("g")).select(col("g"), lit(1).count)
    assert Counter(map(tuple, counts.execute().collect())) == {(0, 4): 5, (1, 4): 5}


def test_windows_go_on_from_a_savepoint() -> None:
    def program(env: Any, source: Any) -> Any:
        t_env = fp.StreamTableEnvironment.create(env)
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "t").uid("t").map(int, output_type=fp.Types.LONG())
        t_env.create_temporary_view("t", stream)
        window = Slide.over(e.row_interval(3)).every(e.row_interval(2)).on(col("p")).alias("w")
        table = t_env.sql_query("SELECT f0, PROCTIME() AS p FROM t")
        return t_env.to_data_stream(table.window(window).group_by(col("w")).select(col("f0").sum.alias("total"))).map(str)

    done = run_upgrade(program, program, ([1, 2, 3, 4], [5, 6, 7]))
    assert sorted([*done.before.output, *done.after.output]) == ["Row(total=12)", "Row(total=18)", "Row(total=6)"]


def test_what_windows_of_rows_take() -> None:
    _, table = environment(10)
    by_rows = Tumble.over(e.row_interval(2))
    for message, make in {
        "on a column PROCTIME": lambda: table.window(by_rows.on(col("v")).alias("w")).group_by(col("w")),
        "grouped by columns": lambda: table.window(by_rows.on(col("p")).alias("w")).group_by(col("w"), (col("v") + 1).alias("x")),
        "there is no window 'w'": lambda: table.window(by_rows.on(col("p")).alias("w")).group_by(col("w")),
        "which is positive": lambda: table.window(Tumble.over(e.row_interval(0)).on(col("p")).alias("w")).group_by(col("w")),
        "Slide.over": lambda: table.window(Slide.over(lit(10).seconds).every(e.row_interval(2)).on(col("p")).alias("w")).group_by(
            col("w")
        ),
    }.items():
        with pytest.raises(fp.ConfigError, match=message):
            make().select(col("v").sum, *([col("w").start] if "no window" in message else []))
