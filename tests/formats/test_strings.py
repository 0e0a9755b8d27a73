"""Text and bytes as messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from forkpoint import Row, Types
from forkpoint.connectors.formats.strings import ByteArraySchema, RowFieldExtractorSchema, SimpleStringSchema
from forkpoint.contract.format import messages_with_values
from forkpoint.errors import ConfigError, TypeNotSupported
from formats.messages import Batch, elements, messages, read


@given(st.lists(st.binary(max_size=8), max_size=4), st.sampled_from(["UTF-8", "ISO-8859-1", "UTF-16LE", "ascii"]))
def test_a_batch_is_read_as_its_messages(values: list[bytes], charset: str) -> None:
    assert read(SimpleStringSchema(charset), *values) == [v.decode(charset, "replace") for v in values]
    assert read(ByteArraySchema(), *values) == values


@given(st.lists(st.text(max_size=5), max_size=4), st.sampled_from(["UTF-8", "UTF-16LE"]), st.booleans())
def test_round_trip(values: list[str], charset: str, columns: bool) -> None:
    schema = SimpleStringSchema(charset)
    written = schema.serialize_batch(Batch(values, Types.STRING(), columns)).to_pylist()
    assert written == [v.encode(charset) for v in values] == list(map(schema.serialize, values))
    assert read(schema, *written) == values


@given(st.lists(st.binary(max_size=5), max_size=4), st.booleans())
def test_bytes_stay_as_they_are(values: list[bytes], columns: bool) -> None:
    assert ByteArraySchema().serialize_batch(Batch(values, Types.BYTES(), columns)).to_pylist() == values


def test_bytes_of_a_dynamic_type_are_not_its_encoding() -> None:
    assert ByteArraySchema().serialize_batch(Batch([b"a"], Types.ANY(), columns=True)).to_pylist() == [b"a"]


def test_tombstones_are_no_elements() -> None:
    for schema in (SimpleStringSchema(), ByteArraySchema()):
        found = schema.deserialize_batch(messages(None, b"a", None, b""))
        assert list(found.indices or ()) == [1, 3]
        assert len(elements(schema, found)) == 2


def test_errors_name_the_value_and_the_remedy() -> None:
    with pytest.raises(ConfigError, match="unknown charset 'klingon'; 'UTF-8' is the default"):
        SimpleStringSchema("klingon")
    with pytest.raises(TypeNotSupported, match="1 is not a str; map the elements to text"):
        SimpleStringSchema().serialize(1)  # type: ignore[arg-type]
    with pytest.raises(TypeNotSupported, match="'a' is not bytes"):
        ByteArraySchema().serialize("a")  # type: ignore[arg-type]


def test_one_field_of_a_row() -> None:
    schema = RowFieldExtractorSchema(1)
    assert schema.serialize_batch(Batch([Row("a", b"1"), ("b", bytearray(b"2")), Row("c", None)])).to_pylist() == [
        b"1",
        b"2",
        b"",
    ]
    with pytest.raises(TypeNotSupported, match=r"field 0 of .* is not bytes; encode it in map"):
        RowFieldExtractorSchema(0).serialize(Row("a", b"1"))
    with pytest.raises(ConfigError, match="not negative: -1"):
        RowFieldExtractorSchema(-1)


class _OrNone(fp.SerializationSchema[str]):
    def serialize(self, element: str) -> bytes | None:
        return element.encode() or None


def test_messages_without_a_value_are_for_kafka_only() -> None:
    assert messages_with_values(_OrNone(), Batch(["a", "b"], Types.STRING(), False), "RabbitMQSink").to_pylist() == [
        b"a",
        b"b",
    ]
    assert _OrNone().serialize_batch(Batch(["a", ""], Types.STRING(), False)).to_pylist() == [b"a", None]
    with pytest.raises(fp.TypeNotSupported, match="RabbitMQSink: _OrNone made a message without a value of '', which only"):
        messages_with_values(_OrNone(), Batch(["a", ""], Types.STRING(), False), "RabbitMQSink")
