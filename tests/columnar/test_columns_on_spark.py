"""Files, windows over columns and process_batch on Spark give what they give on the local engine."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from column_jobs import Sale
from test_aggregates import random_sales
from test_process_batch import InColumns, Row

import forkpoint as fp
from forkpoint.types import type_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("session")]


def counted(sale, state):
    """Over columns: its epochs are long enough."""
    n, least = state or (0, sale.amount)
    now = n + 1, min(least, sale.amount)
    return (sale.shop, sale.till, *now), now


def results(engine, directory, make):
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": engine})
    env.set_parallelism(2).set_max_epoch_rows(50 if make is not with_state else 2000)
    strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(5).with_timestamp_assigner(lambda s, _: s.ts)
    sales = env.from_source(fp.FileSource.parquet(str(directory), Sale, bounded=True), strategy, "sales")
    return sorted(map(repr, make(sales.key_by(lambda s: (s.shop, s.till))).execute_and_collect()))


def with_state(keyed):
    return keyed.map_with_state(counted, tuple[int, int], tuple[int, str, int, int])


@pytest.mark.parametrize(
    "make",
    [
        lambda k: k.window(fp.EventTimeSessionWindows.with_gap(6)).agg(
            n=fp.Count(), mean=fp.Avg("weight"), top=fp.MaxBy("amount")
        ),
        lambda k: k.process_batch(InColumns(), Row),
        with_state,
    ],
    ids=["sessions", "process_batch", "with_state"],
)
def test_the_same_results(tmp_path, make):
    type = type_of(Sale)
    for i in range(4):
        part = random_sales(200)[i * 50 : (i + 1) * 50] * (20 if make is with_state else 1)
        pq.write_table(pa.Table.from_arrays(type.to_columns(part), schema=type.arrow_schema), tmp_path / f"{i}.parquet")
    found = results("spark", tmp_path, make)
    assert found == results("local", tmp_path, make)
    assert len(found) > 50
