"""The laws: every type gives its values back exactly, as bytes and as columns, with and without its classes."""

from __future__ import annotations

import io
import json
import math
from typing import Any, NamedTuple

import cloudpickle
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from type_strategies import DYNAMIC, TEXT, exact, types

from example_counts import examples
from forkpoint.types import Types, from_description, type_of

quick = examples(100, suppress_health_check=list(HealthCheck))


@quick
@given(st.data())
def test_bytes_give_values_back(data: st.DataObject) -> None:
    annotation, values = data.draw(types)
    of, value = type_of(annotation), data.draw(values)
    assert exact(of.decode(of.encode(value))) == exact(value)


@quick
@given(st.data())
def test_columns_give_values_back(data: st.DataObject) -> None:
    annotation, values = data.draw(types)
    of, some = type_of(annotation), data.draw(st.lists(values, max_size=6))
    columns = of.to_columns(some)
    batch = pa.RecordBatch.from_arrays(columns, schema=of.arrow_schema)
    batch.validate(full=True)
    assert of.column_names == batch.schema.names
    assert exact(of.from_columns(batch.columns)) == exact(some)
    assert exact(of.from_arrow(of.to_arrow(some))) == exact(some)
    cut = of.to_arrow(some).slice(1, 3)  # arrays with an offset
    assert exact(of.from_arrow(cut)) == exact(some[1:4])
    assert exact(of.from_arrow(pa.chunked_array([of.to_arrow(some), cut]))) == exact(some + some[1:4])


@quick
@given(st.data())
def test_column_and_bytes_agree(data: st.DataObject) -> None:
    """What comes out of a column has the bytes that it had before: keys are hashed on either side of a shuffle."""
    annotation, values = data.draw(types)
    of, some = type_of(annotation), data.draw(st.lists(values, max_size=4))
    restored = of.from_columns(of.to_columns(some))
    assert [of.encode(value) for value in restored] == [of.encode(value) for value in some]


@quick
@given(st.data())
def test_a_description_stands_for_the_type(data: st.DataObject) -> None:
    annotation, values = data.draw(types)
    of, some = type_of(annotation), data.draw(st.lists(values, max_size=4))
    description = json.loads(json.dumps(of.describe()))
    classless = from_description(description)
    assert classless == of
    assert hash(classless) == hash(of)
    assert classless.describe() == of.describe()
    assert classless.arrow_schema == of.arrow_schema
    encoded = [of.encode(value) for value in some]
    foreign = [classless.decode(data) for data in encoded]
    assert [classless.encode(value) for value in foreign] == encoded
    assert exact(of.from_columns(classless.to_columns(foreign))) == exact(some)


@quick
@given(st.data())
def test_a_pickled_type_is_the_type(data: st.DataObject) -> None:
    annotation, values = data.draw(types)
    of, value = type_of(annotation), data.draw(values)
    of.encode(value), of.decode(of.encode(value))  # msgspec's caches must not get into the pickle
    copy = cloudpickle.loads(cloudpickle.dumps(of))
    assert copy == of
    assert exact(copy.decode(copy.encode(value))) == exact(value)


@quick
@given(st.dictionaries(TEXT | st.integers(), st.sets(TEXT)), st.randoms())
def test_equal_dicts_and_sets_have_equal_bytes(value: dict[Any, set[str]], random: Any) -> None:
    items = list(value.items())
    random.shuffle(items)
    shuffled = {key: set(random.sample(sorted(members), len(members))) for key, members in items}
    assert Types.ANY().encode(shuffled) == Types.ANY().encode(value)
    texts = {str(key): members for key, members in items}
    of = type_of(dict[str, set[str]])
    assert of.encode(texts) == of.encode(dict(sorted(texts.items())))
    pairs = type_of(dict[tuple[str], frozenset[str]])
    assert pairs.encode({(k,): frozenset(v) for k, v in texts.items()}) == pairs.encode(
        {(k,): frozenset(v) for k, v in sorted(texts.items())}
    )


@quick
@given(DYNAMIC)
def test_dynamic_values_come_back_exactly(value: Any) -> None:
    of = Types.ANY()
    assert exact(of.decode(of.encode(value))) == exact(value)
    assert of.encode(of.decode(of.encode(value))) == of.encode(value)
    nested = type_of(list[Any])
    assert exact(nested.decode(nested.encode([value, None]))) == exact([value, None])


@pytest.mark.parametrize("annotation", [float, tuple[float, int], Any, list[float], Types.FLOAT()])
def test_nan_survives(annotation: Any) -> None:
    of = type_of(annotation)
    value: Any = {"list[DOUBLE]": [math.nan], "tuple[DOUBLE, LONG]": (math.nan, 1)}.get(repr(of), math.nan)
    for restored in (of.decode(of.encode(value)), of.from_columns(of.to_columns([value]))[0]):
        assert repr(restored) == repr(value)


class Nested(NamedTuple):
    name: str
    tags: list[str | None] | None
    counts: dict[str, int]
    inner: tuple[int, tuple[bool, ...]] | None


@pytest.mark.parametrize("form", ["ipc", "parquet"])
def test_columns_survive_files(form: str) -> None:
    of = type_of(Nested)
    values = [
        Nested("a", ["x", None], {"k": 1}, (1, (True, False))),
        Nested("b", None, {}, None),
        Nested("c", [], {"k": 2, "l": 3}, (2, ())),
    ]
    table = pa.Table.from_arrays(of.to_columns(values), schema=of.arrow_schema)
    sink = io.BytesIO()
    if form == "parquet":
        pq.write_table(table, sink)
        table = pq.read_table(io.BytesIO(sink.getvalue()))
    else:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        table = pa.ipc.open_stream(sink.getvalue()).read_all()
    assert of.from_columns(table.columns) == values
