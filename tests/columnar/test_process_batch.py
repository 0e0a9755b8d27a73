"""KeyedBatchFunction: tables in, tables out, and states of whole columns that other functions read as well."""

from dataclasses import dataclass
from typing import NamedTuple, Optional

import numpy as np
import pyarrow as pa
import pytest
from column_jobs import KEYS, Sale
from hypothesis import given
from hypothesis import strategies as st
from test_aggregates import random_sales

import forkpoint as fp
from example_counts import examples
from forkpoint.testing import ABORT, Eof, TestSource, run_local


@dataclass
class Totals:
    count: int
    amount: int
    note: str
    heaviest: Optional[float] = None  # noqa: UP045


class Row(NamedTuple):
    shop: int
    till: str
    ts: int
    count: int
    amount: int


TOTALS = fp.ValueStateDescriptor("totals", Totals)
HISTORY = fp.ListStateDescriptor("history", int)
NOTES = fp.MapStateDescriptor("notes", str, int)


class InColumns(fp.KeyedBatchFunction):
    """Running count and sum, a row for each element."""

    totals = TOTALS
    history = HISTORY
    notes = NOTES

    def process_batch(self, table, ctx):
        totals, index, starts = ctx.get_state(self.totals), ctx.key_index, ctx.offsets[:-1]
        before = totals.read()
        amounts = table["amount"].to_numpy()
        count = np.arange(len(index)) - starts[index] + 1 + before["count"].fill_null(0).to_numpy()[index]
        sums = np.cumsum(amounts)
        total = sums - (sums[starts] - amounts[starts])[index] + before["amount"].fill_null(0).to_numpy()[index]
        last = ctx.offsets[1:] - 1
        heaviest = np.fmax(
            np.maximum.reduceat(table["weight"].to_numpy(), starts), before["heaviest"].to_numpy(zero_copy_only=False)
        )
        totals.write(
            {
                "count": count[last],
                "amount": total[last],
                "note": table["note"].take(pa.array(last)),
                "heaviest": heaviest,
            }
        )
        history, notes = ctx.get_state(self.history), ctx.get_state(self.notes)
        seen = [table["ts"].to_pylist()[a:b] for a, b in zip(ctx.offsets, ctx.offsets[1:], strict=False)]
        history.write([old + new for old, new in zip(history.read(), seen, strict=True)])
        notes.write(
            [{**old, note.as_py(): 1} for old, note in zip(notes.read(), table["note"].take(pa.array(last)), strict=True)]
        )
        return table.select(["shop", "till", "ts"]).append_column("count", pa.array(count)).append_column("amount", [total])


class ByElement(fp.KeyedProcessFunction):
    """The same, element by element."""

    totals = TOTALS
    history = HISTORY
    notes = NOTES

    def process_element(self, value, ctx):
        so_far = self.totals.value() or Totals(0, 0, "")
        heaviest = max(value.weight, so_far.heaviest or value.weight)
        self.totals.update(Totals(so_far.count + 1, so_far.amount + value.amount, value.note, heaviest))
        self.history.add(value.ts)
        yield Row(value.shop, value.till, value.ts, so_far.count + 1, so_far.amount + value.amount)


def job(make, key="int", bound=5):
    def build(env, source):
        strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(bound).with_timestamp_assigner(lambda e, _: e.ts)
        return make(env.from_source(source, strategy, "in").uid("in").key_by(KEYS[key])).uid("totals")

    return build


def columns(keyed):
    return keyed.process_batch(InColumns(), Row)


def elements(keyed):
    return keyed.process(ByElement())


def by_key(run, key):
    found = {}
    for record in run.records["output"]:
        found.setdefault(KEYS[key](record.value), []).append((tuple(record.value), record.timestamp))
    return found


@examples(5)
@given(
    st.sampled_from(sorted(KEYS)),
    st.sampled_from([1, 4, 11, 60]),
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 10**6),
    st.integers(1, 39),
)
def test_as_element_by_element_at_any_cut(key, rows, parallelism, columnar, seed, died):
    events = random_sales(40, seed)
    expected = by_key(run_local(job(elements, key), TestSource(events, type=Sale)), key)
    source = TestSource([*events[:died], ABORT, *events[died:]], type=Sale, columnar=columnar)
    found = run_local(job(columns, key), source, epochs=rows, parallelism=parallelism)
    assert by_key(found, key) == expected
    assert [r.timestamp for r in found.records["output"]] == [r.value.ts for r in found.records["output"]]


@pytest.mark.parametrize(("first", "second"), [(columns, elements), (elements, columns), (columns, columns)])
def test_either_tier_goes_on_from_the_others_savepoint(tmp_path, first, second):
    events = random_sales(60)
    script = TestSource([*events[:31], Eof(savepoint=True), *events[31:]], type=Sale, columnar=True)
    before = run_local(job(first, "pair"), script, parallelism=2, state_root=tmp_path / "1", epochs=7)
    after = run_local(job(second, "pair"), script, parallelism=3, state_root=tmp_path / "2", restore=before.savepoint, epochs=9)
    whole = by_key(run_local(job(elements, "pair"), TestSource(events, type=Sale)), "pair")
    found = by_key(before, "pair")
    for key, rows in by_key(after, "pair").items():
        found.setdefault(key, []).extend(rows)
    assert found == whole


class Seen(NamedTuple):
    keys: int
    rows: int
    watermark: int


class Looks(fp.KeyedBatchFunction):
    """Emits a row for each epoch, and keeps only keys with an even count."""

    count = fp.ValueStateDescriptor("count", int)
    parameter = ""

    def open(self, runtime_context):
        assert runtime_context.get_number_of_parallel_subtasks() == 1

    def process_batch(self, table, ctx):
        state = ctx.get_state(self.count)
        counts = state.read().fill_null(0).to_numpy() + np.diff(ctx.offsets)
        state.write(counts)
        state.clear(counts % 2 == 1)
        assert (state.exists == (counts % 2 == 0)).all()
        assert state.read().null_count == int((counts % 2).sum())
        assert ctx.keys.to_pylist() == sorted(set(table["shop"].to_pylist()))
        assert (np.asarray(ctx.keys)[ctx.key_index] == table["shop"].to_numpy()).all()
        assert (ctx.timestamps == table["ts"].to_numpy()).all()
        assert (ctx.watermarks <= ctx.watermark).all()
        row = {"keys": [len(ctx.keys)], "rows": [table.num_rows], "watermark": [ctx.watermark]}
        ctx.collect(pa.table(row), np.array([table.num_rows - 1]))


def test_the_context_and_partial_writes():
    events = random_sales(40)
    found = run_local(
        job(lambda k: k.process_batch(Looks(), Seen)),
        TestSource(events, type=Sale, columnar=True),
        parallelism=1,
        epochs=10,
    )
    assert [o.rows for o in found.output] == [10] * 4
    assert [o.watermark for o in found.output] == [
        *(max(e.ts for e in events[:n]) - 6 for n in (10, 20, 30)),
        2**63 - 1,
    ]


class Gives(fp.KeyedBatchFunction):
    count = fp.ValueStateDescriptor("count", int)

    def __init__(self, give):
        self.give = give

    def process_batch(self, table, ctx):
        return self.give(self, table, ctx)


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda self, t, c: t.slice(0, 3), "returned 3 rows for 40 elements of 5 keys"),
        (lambda self, t, c: t.drop_columns(["till"]), "lack the columns till"),
        (lambda self, t, c: t.set_column(0, "shop", pa.array(["x"] * 40)), "column 'shop'"),
        (lambda self, t, c: t.set_column(0, "shop", pa.array([None] * 40, pa.int64())), "has nulls"),
        (lambda self, t, c: c.get_state(self.count).write(np.zeros(3)), "3 entries for 5 keys"),
        (lambda self, t, c: c.get_state(self.count).write(pa.array([None] * 5)), "has nulls"),
        (lambda self, t, c: c.get_state(self.count).write(["x"] * 5), "cannot be written"),
        (lambda self, t, c: c.get_state(self.count).clear(np.zeros(3)), "one bool for each of the 5 keys"),
        (lambda self, t, c: c.get_state(HISTORY), "is not declared on Gives"),
        (lambda self, t, c: c.collect(t, np.zeros(3)), "collect"),
        (lambda self, t, c: 1 // 0, "(?s)'totals'.*ZeroDivisionError.*a batch of 40 elements"),
    ],
)
def test_mistakes_name_operator_and_remedy(give, message):
    with pytest.raises(fp.ForkpointError, match=message):
        run_local(
            job(lambda k: k.process_batch(Gives(give), Sale)),
            TestSource(random_sales(40), type=Sale, columnar=True),
            parallelism=1,
        )


def test_what_cannot_run_is_refused_when_it_is_built():
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    typed = env.from_collection(random_sales(3), Sale).key_by(lambda e: e.shop)
    with pytest.raises(fp.GraphError, match="needs an output_type"):
        typed.process_batch(InColumns())
    with pytest.raises(fp.GraphError, match="takes a KeyedBatchFunction"):
        typed.process_batch(ByElement(), Row)
    untyped = typed.map(lambda e: e).key_by(lambda e: e.shop)
    with pytest.raises(fp.GraphError, match="are untyped"):
        untyped.process_batch(InColumns(), Row)

    class Expiring(InColumns):
        totals = fp.ValueStateDescriptor("totals", Totals).enable_time_to_live(fp.Time.seconds(3))

    with pytest.raises(fp.GraphError, match="time to live"):
        typed.process_batch(Expiring(), Row)
