"""Saved values of a type that a program no longer declares are read as values of ANY."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from type_strategies import exact, types

from forkpoint import Row, Types
from forkpoint.savepoint.restore.evolution import convert_columns
from forkpoint.types import Misfit, evolve, from_description, type_of

ROWS = st.tuples(st.integers(0, 9), st.none() | st.text("ab")).map(lambda pair: Row(x=pair[0], y=pair[1]))


@settings(max_examples=150)
@given(
    st.data(),
    types | st.just((Types.ROW_NAMED(["x", "y"], [Types.LONG(), Types.STRING()]), ROWS)),
    st.booleans(),
)
def test_values_are_the_same_unless_they_have_classes(data, typed, inside):
    """By themselves and inside of a record, whatever their type. Refused before, whatever they were."""
    annotation, strategy = typed
    values = data.draw(st.lists(strategy, max_size=4))
    if inside:
        values = [(value, 7) for value in values]
    old = type_of(tuple[annotation, int] if inside else annotation)
    new = type_of(tuple[Any, int] if inside else Any)
    found = evolve(old.describe(), new)
    if isinstance(found, Misfit):
        assert "without its class; keep the type" in found.why
        assert any(word in str(old.describe()) for word in ("namedtuple", "dataclass", "struct", "enum"))
        return
    saved = from_description(old.describe())
    columns = saved.to_columns([saved.decode(old.encode(value)) for value in values])
    made = new.from_columns(convert_columns(columns, saved, new, found.step))
    assert exact(made) == exact([old.decode(old.encode(value)) for value in values])
