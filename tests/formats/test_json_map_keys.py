"""Maps in JSON whatever their keys: bools and enums as text, what has no text as an array of pairs; read back equal."""

import enum
import json

import pyarrow as pa
import pytest

import forkpoint as fp
from forkpoint.connectors.formats.json import JsonRowDeserializationSchema
from forkpoint.connectors.formats.jsonable import encode_lines
from forkpoint.types import type_of


class Kind(enum.Enum):
    A = "a"
    B = "b"


MAPS = {
    "bool": (dict[bool, int], {True: 1, False: 2}, {"true": 1, "false": 2}),
    "tuple": (dict[tuple[int, int], int], {(1, 2): 3}, [[[1, 2], 3]]),
    "enum": (dict[Kind, int], {Kind.A: 1, Kind.B: 2}, {"a": 1, "b": 2}),
    "set": (dict[frozenset[int], int], {frozenset([1]): 2}, [[[1], 2]]),
    "optional": (dict[int | None, int], {None: 1, 4: 2}, [[None, 1], [4, 2]]),
    "nested": (dict[str, dict[bool, int]], {"a": {True: 1}}, {"a": {"true": 1}}),
}


@pytest.mark.parametrize(("type", "value", "written"), MAPS.values(), ids=MAPS.keys())
def test_maps_with_any_keys_are_written_and_read_back(type, value, written):
    line = encode_lines([value], type_of(type))
    assert json.loads(line) == written
    (part,) = JsonRowDeserializationSchema(type_of(type)).read(pa.array([line.strip()], pa.binary()))
    elements = part.elements
    found = elements if isinstance(elements, list) else type_of(type).from_arrow(elements.column(0))
    assert list(found) == [value]


def test_a_value_that_has_no_json_is_refused_by_name():
    with pytest.raises(fp.TypeNotSupported, match=r"\(1\+2j\) \(complex\) cannot be written as JSON"):
        encode_lines([{"a": 1 + 2j}], None)
