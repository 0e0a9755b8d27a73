"""PyFlink's formats of files: CSV and Parquet by a schema, and Avro, against what others write and read."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import forkpoint as fp
from connectors.connector_reading import elements, json_round_trip
from forkpoint.api.launch import Launch
from forkpoint.connectors.files import formats as file_index
from forkpoint.connectors.files.formats import CsvFormat
from forkpoint.connectors.files.parsers import CsvParser, Stretch
from forkpoint.connectors.formats.records import RecordConverter
from forkpoint.graph.options import RestoreOptions
from forkpoint.pyflink.datatypes import DataTypes, column_type
from forkpoint.pyflink.environment import StreamExecutionEnvironment
from forkpoint.pyflink.formats import (
    AvroBulkWriters,
    AvroInputFormat,
    AvroSchema,
    CsvBulkWriters,
    CsvReaderFormat,
    CsvSchema,
    GenericRecordAvroTypeInfo,
    ParquetBulkWriters,
    ParquetColumnarRowInputFormat,
)
from forkpoint.pyflink.names import resolve
from patience import PATIENCE_S


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest) -> str:
    if request.param == "spark":
        request.getfixturevalue("session")
    return request.param


def environment(engine: str = "local", parallelism: int = 1) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment({"execution.engine": engine})
    return env.set_parallelism(parallelism)


def source_of(schema: CsvSchema, path: Path) -> fp.FileSource[Any]:
    return fp.FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), str(path)).build()


def read(source: fp.FileSource[Any], rows: int = 1000, hint: int = 1) -> Iterator[Any]:
    """All elements, in epochs of so many rows, each divided, from a position that is saved and restored in between."""
    enumerator = source.create_enumerator(None)
    while planned := enumerator.plan(rows, hint):
        for each in planned:
            yield from elements(source, each)
        enumerator = source.create_enumerator(json_round_trip(enumerator.position))


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file() and not path.name.startswith("."))


PIECES = st.sampled_from([*"a b,;|'\"`#\n\r\t", "é", "\u2028", "x" * 30])
TEXT = st.lists(PIECES, max_size=6).map("".join)
ROWS = st.lists(
    st.tuples(st.integers(-(2**31), 2**31 - 1), TEXT, st.floats(allow_nan=False), st.booleans()),
    min_size=1,
    max_size=12,
)


def schema_of(delimiter: str = ",", quote: str = '"', **options: bool) -> CsvSchema:
    builder = CsvSchema.builder().add_number_column("n", DataTypes.INT()).add_string_column("s")
    builder.add_number_column("x", DataTypes.DOUBLE()).add_boolean_column("b")
    builder.set_column_separator(delimiter).set_quote_char(quote)
    for name, value in options.items():
        getattr(builder, name)(value)
    return builder.build()


class TestCsv:
    @settings(max_examples=60)
    @given(
        rows=ROWS,
        delimiter=st.sampled_from([",", "|", "\t", ";"]),
        quote=st.sampled_from(['"', "'", "`"]),
        header=st.booleans(),
        every=st.integers(1, 5),
        hint=st.integers(1, 3),
        end=st.sampled_from(["\n", "\r\n"]),
        block=st.sampled_from([3, 7, 1 << 16]),
    )
    def test_what_pythons_csv_writes_is_read(self, tmp_path_factory, rows, delimiter, quote, header, every, hint, end, block):
        """Any text, line ends in it too, wherever epochs and pieces are cut. No such schema before."""
        out = io.StringIO()
        writer = csv.writer(out, delimiter=delimiter, quotechar=quote, lineterminator=end, quoting=csv.QUOTE_NONNUMERIC)
        if header:
            writer.writerow(["these", "are", "other", "names"])
        writer.writerows([(n, s, repr(x), str(b).lower()) for n, s, x, b in rows])
        path = tmp_path_factory.mktemp("in") / "a.csv"
        path.write_bytes(out.getvalue().encode())
        source = source_of(schema_of(delimiter, quote, set_use_header=header), path)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(file_index, "_BLOCK", block)
            patch.setattr(file_index, "_READ", 4 * block)
            found = list(read(source, every, hint))
        assert [tuple(row) for row in found] == rows

    @given(
        st.lists(
            st.sampled_from([b"1,a", b",2.5", b"\n", b"\n", b'"', b'1,"a\n",2.5\n', b"0x1", b",", b" ", b"#", b"nan"]),
            max_size=8,
        ).map(b"".join)
    )
    @example(b'1,"a"b,2.5\n')
    @example(b"1,,\n")
    def test_at_once_as_one_by_one(self, data):
        schema = CsvSchema.builder().add_number_column("n").add_string_column("s").add_number_column("x", DataTypes.DOUBLE())
        layout = schema.build().layout
        parser, stretch = CsvParser(CsvFormat.of(layout), layout.type), Stretch(Path("file"), data, 1)
        at_once = parser.parse([stretch])
        if at_once is not None:
            records = list(parser.records(stretch))
            assert not [record.problem for record in records if record.problem]
            out, problems = RecordConverter(layout.type, from_text=True).convert([record.raw for record in records])
            assert not problems
            assert isinstance(out, pa.RecordBatch)
            assert repr(at_once.to_pylist()) == repr(out.to_pylist())

    def test_what_is_written_is_what_pandas_reads(self, tmp_path, engine):
        schema = schema_of("|", "'", set_use_header=True)
        rows = [
            (-7, "it's|a\nline", 1e-7, True),
            (2**31 - 1, "", 12345678.9, False),
            (0, "#no comment " * 3, 0.25, True),
        ]
        env = environment(engine)
        stream = env.from_collection(rows, schema.layout.type)
        stream.sink_to(fp.FileSink.for_bulk_format(str(tmp_path), CsvBulkWriters.for_schema(schema)).build())
        env.execute()
        (path,) = files(tmp_path)
        frame = pd.read_csv(path, sep="|", quotechar="'", keep_default_na=False)
        assert list(frame.itertuples(index=False, name=None)) == rows
        assert path.read_text().splitlines()[1].startswith("-7|'it''s|a")
        assert "|1.0E-7|true" in path.read_text()  # Java's notation of numbers
        assert [tuple(row) for row in read(source_of(schema, path))] == rows

    @given(
        rows=st.lists(
            st.tuples(TEXT, st.none() | st.decimals(-99, 99, places=2), st.lists(st.integers(-9, 9), max_size=3)),
            min_size=1,
            max_size=6,
        ),
        escape=st.sampled_from([None, "\\"]),
        delimiter=st.sampled_from([",", ";", "x"]),
    )
    def test_written_and_read(self, tmp_path_factory, rows, escape, delimiter):
        """Arrays, decimals, None, escapes: what a sink's file has is what a source has."""
        builder = CsvSchema.builder().add_string_column("s").add_number_column("d", DataTypes.DECIMAL(4, 2))
        builder.add_array_column("xs", "/", DataTypes.INT()).set_column_separator(delimiter)
        builder.set_null_value("NIL")
        schema = (builder.set_escape_char(escape) if escape else builder).build()
        table = pa.RecordBatch.from_arrays(schema.layout.type.to_columns(rows), schema=schema.layout.type.arrow_schema)
        path = tmp_path_factory.mktemp("in") / "a.csv"
        path.write_bytes(schema.layout.lines(table))
        assert [tuple(row) for row in read(source_of(schema, path))] == rows

    @pytest.mark.parametrize(
        ("build", "content", "want"),
        [
            (lambda b: b.set_skip_first_data_row(), "9,z\n1,a\n", [(1, "a")]),
            (lambda b: b.set_use_header().set_skip_first_data_row(), "n,s\n9,z\n1,a\n", [(1, "a")]),
            (lambda b: b.set_use_header().set_strict_headers(), "\ufeffn,s\n1,a\n", [(1, "a")]),
            (lambda b: b.set_allow_comments().set_use_header(), "# c\n\nn,s\n# 'd\n1,a\n#e", [(1, "a")]),
            (lambda b: b.set_use_header(), "n,s", []),
            (lambda b: b.set_use_header(), "", []),
            (lambda b: b.set_null_value(""), "1,\n,a\n", [(1, None), (None, "a")]),
            (lambda b: b.set_null_value("-"), " 1 ,-\n", [(1, None)]),
            (lambda b: b.disable_quote_char(), '1,"a\n2,b"\n', [(1, '"a'), (2, 'b"')]),
            (
                lambda b: b,
                '1,5" pipe\n2,b\n3,6" x\n4,"q"\n5,7"\n',
                [(1, '5" pipe'), (2, "b"), (3, '6" x'), (4, "q"), (5, '7"')],
            ),
            (lambda b: b.set_escape_char("\\"), '1,a\\,b\n2,"\\""\n', [(1, "a,b"), (2, '"')]),
            (lambda b: b.set_any_property_name("others").set_line_separator("\r\n"), "1,a\r\n", [(1, "a")]),
        ],
    )
    def test_settings(self, tmp_path, build, content, want):
        builder = CsvSchema.builder().add_number_column("n").add_string_column("s")
        (tmp_path / "a.csv").write_bytes(content.encode())
        source = source_of(build(builder).build(), tmp_path)
        for rows in (1, 100):
            assert [tuple(row) for row in read(source, rows)] == want

    def test_arrays_and_decimals(self, tmp_path):
        builder = CsvSchema.builder().add_array_column("a").add_array_column("b", "", DataTypes.DECIMAL(3, 1))
        builder.add_number_column("d", DataTypes.DECIMAL(2, 0)).set_array_element_separator(":")
        (tmp_path / "a.csv").write_text("x;y,1.25:2,1.5\n,,-0.5\n")
        assert [tuple(row) for row in read(source_of(builder.build(), tmp_path))] == [
            (["x", "y"], [Decimal("1.3"), Decimal("2.0")], 2),
            ([], [], Decimal("-1")),
        ]
        copied = CsvSchema.builder().add_string_column("s").clear_columns().add_columns_from(builder.build()).build()
        assert (copied.size(), len(copied)) == (3, 3)
        assert "a: list[Optional[STRING]]" in str(copied)

    @pytest.mark.parametrize(
        ("line", "problem"),
        [
            ("x,a,1,true", r"line 3: cannot read x,a,1,true as n, s, x, b: n: expected int, got 'x'"),
            ("1,a,1", "3 values for the 4 columns n, s, x, b"),
            (",a,1,true", r"n: empty, which is not INT; set_null_value\(''\) makes it None"),
            ("1,a,1,yes", "b: expected true or false, got 'yes'"),
            ("1,a,1,1", "b: expected true or false, got '1'"),
            ("3000000000,a,1,true", "line 3.*3000000000 is not a value of INT"),
            ('1,"a,1,true', "line 3.*not CSV"),
        ],
    )
    def test_a_damaged_line_is_named(self, tmp_path, line, problem):
        (tmp_path / "a.csv").write_text(f"n,s,x,b\n1,a,1,true\n{line}\n")
        env = environment()
        stream = env.from_source(source_of(schema_of(set_use_header=True), tmp_path), fp.WatermarkStrategy.no_watermarks(), "in")
        with pytest.raises(fp.RecordParseError, match=rf"(?s)a\.csv.*{problem}"), stream.execute_and_collect() as found:
            list(found)

    def test_what_a_schema_cannot_be(self, tmp_path):
        with pytest.raises(fp.ConfigError, match=r"columns are \['a', 'a'\]; .*each name once"):
            CsvSchema.builder().add_string_column("a").add_string_column("a").build()
        with pytest.raises(ValueError, match="Quote char must be a single char, got ''"):
            CsvSchema.builder().set_quote_char("''")
        with pytest.raises(fp.ConfigError, match="lines cannot end with ';'"):
            CsvSchema.builder().set_line_separator(";")
        with pytest.raises(fp.GraphError, match=r"DataTypes\.RAW is not supported"):
            _ = DataTypes.RAW
        (tmp_path / "a.csv").write_text("n,t\n")
        strict = CsvSchema.builder().add_number_column("n").add_string_column("s").set_use_header().set_strict_headers()
        with pytest.raises(fp.RecordParseError, match=r"a\.csv: the header has n, t where the schema has n, s"):
            list(read(source_of(strict.build(), tmp_path)))
        plain = CsvSchema.builder().add_string_column("s").disable_quote_char().build()
        table = pa.RecordBatch.from_arrays(plain.layout.type.to_columns([("a,b",)]), schema=plain.layout.type.arrow_schema)
        with pytest.raises(fp.TypeNotSupported, match="'a,b' needs quotes or an escape character"):
            plain.layout.lines(table)

    def test_stopped_with_a_savepoint_and_gone_on_inside_of_a_file(self, tmp_path, engine):
        """Each record once, over files of which one is half read when the job stops, at another parallelism afterwards."""
        schema = CsvSchema.builder().add_number_column("n").add_string_column("s").set_use_header().build()
        directory = tmp_path / "in"
        directory.mkdir()
        want = [(n, f'"{n}"\n,') for n in range(300)]
        for part in range(3):
            with (directory / f"{part}.csv").open("w", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerows([("n", "s"), *want[100 * part : 100 * (part + 1)]])

        def make(parallelism: int, rows: int) -> StreamExecutionEnvironment:
            env = environment(engine, parallelism).set_max_epoch_rows(rows).enable_checkpointing(50)
            env.configure({"execution.checkpointing.dir": str(tmp_path / "state")})
            stream = env.from_source(source_of(schema, directory), fp.WatermarkStrategy.no_watermarks(), "in").uid("in")
            sink = fp.FileSink.for_bulk_format(str(tmp_path / "out"), CsvBulkWriters.for_schema(schema)).build()
            stream.sink_to(sink).uid("out")
            return env

        env = make(2, 30)
        client = env.execute_async("half")
        while not files(tmp_path / "out") and not client.get_job_execution_result().done():
            time.sleep(0.02)
        savepoint = client.stop_with_savepoint().result(PATIENCE_S)
        client.get_job_execution_result().result(PATIENCE_S)

        def written() -> list[tuple[Any, ...]]:
            frames = [pd.read_csv(path, keep_default_na=False) for path in files(tmp_path / "out")]
            return sorted(row for frame in frames for row in frame.itertuples(index=False, name=None))

        half = len(written())
        assert 0 < half < 300
        assert half % 100
        env = make(3, 1000)
        env.launch = Launch(restore=RestoreOptions(savepoint=savepoint))
        env.execute("half")
        assert written() == want


class TestParquet:
    ROW = DataTypes.ROW(
        [
            DataTypes.FIELD("s", DataTypes.VARCHAR(10)),
            DataTypes.FIELD("d", DataTypes.DECIMAL(5, 2)),
            DataTypes.FIELD("n", DataTypes.BIGINT().not_null()),
            DataTypes.FIELD("day", DataTypes.DATE()),
            DataTypes.FIELD("t", DataTypes.TIMESTAMP(3).bridged_to("java.sql.Timestamp")),
            DataTypes.FIELD("z", DataTypes.TIMESTAMP_LTZ(3)),
            DataTypes.FIELD("b", DataTypes.VARBINARY(9)),
            DataTypes.FIELD("xs", DataTypes.ARRAY(DataTypes.INT())),
            DataTypes.FIELD("m", DataTypes.MAP(DataTypes.STRING(), DataTypes.DOUBLE())),
            DataTypes.FIELD("r", DataTypes.ROW([DataTypes.FIELD("x", DataTypes.TIME())])),
        ]
    )

    def test_what_is_written_is_what_arrow_reads(self, engine, tmp_path):
        moment = datetime.fromisoformat("2026-02-03T04:05:06.7")
        full = fp.Row(
            "a",
            Decimal("-1.555"),
            2**40,
            moment.date(),
            moment,
            moment.replace(tzinfo=UTC),
            b"\0",
            [1, None],
            {"k": 0.5},
            fp.Row(moment.time()),
        )
        empty = fp.Row(*[None] * 10)
        env = environment(engine)
        writers = ParquetBulkWriters.for_row_type(self.ROW, fp.Configuration(), utc_timestamp=True)
        policy = resolve("OnCheckpointRollingPolicy")(fp.RollingPolicy.default_rolling_policy(part_size=1 << 20))
        sink = fp.FileSink.for_bulk_format(str(tmp_path), writers).with_rolling_policy(policy)
        env.from_collection([full, empty], column_type(self.ROW.sql)).sink_to(sink.build())
        env.execute()
        (path,) = files(tmp_path)
        table = pq.read_table(path)
        assert table.schema.field("d").type == pa.decimal128(5, 2)
        assert pq.read_metadata(path).row_group(0).column(0).compression == "SNAPPY"
        assert table.to_pylist()[0] == {
            "s": "a",
            "d": Decimal("-1.56"),
            "n": 2**40,
            "day": moment.date(),
            "t": moment,
            "z": moment.replace(tzinfo=UTC),
            "b": b"\0",
            "xs": [1, None],
            "m": [("k", 0.5)],
            "r": {"x": moment.time()},
        }
        assert set(table.to_pylist()[1].values()) == {None}
        source = fp.FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(self.ROW), str(path)).build()
        (found, none) = read(source, 1)
        assert list(found)[2:] == list(full)[2:]
        assert none == fp.Row.of(none.field_names, [None] * 10)

    def test_columns_in_another_case(self, tmp_path):
        pq.write_table(pa.table({"ID": [1, 2], "other": ["a", "b"]}), tmp_path / "a.parquet")
        of = DataTypes.ROW([DataTypes.FIELD("id", DataTypes.BIGINT())])
        for exactly, want in ((True, [None, None]), (False, [1, 2])):
            built = ParquetColumnarRowInputFormat(of, fp.Configuration(), is_case_sensitive=exactly)
            source = fp.FileSource.for_bulk_file_format(built, str(tmp_path)).build()
            assert [row.id for row in read(source, 1)] == want

    def test_what_cannot_be(self, tmp_path):
        inside = DataTypes.ROW([DataTypes.FIELD("ds", DataTypes.ARRAY(DataTypes.DECIMAL(3, 1)))])
        with pytest.raises(fp.ConfigError, match="ds has decimals inside of it"):
            ParquetBulkWriters.for_row_type(inside)
        with pytest.raises(fp.ConfigError, match=r"rows of DataTypes\.ROW"):
            ParquetBulkWriters.for_row_type(DataTypes.INT())
        env = environment()
        of = DataTypes.ROW([DataTypes.FIELD("d", DataTypes.DECIMAL(3, 1))])
        sink = fp.FileSink.for_bulk_format(str(tmp_path), ParquetBulkWriters.for_row_type(of)).build()
        env.from_collection([fp.Row(Decimal("123.4"))], column_type(of.sql)).sink_to(sink)
        with pytest.raises(fp.TypeNotSupported, match=r"d: 123\.4 does not fit DECIMAL\(3, 1\)"):
            env.execute()


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "size", "type": {"type": "enum", "name": "Size", "symbols": ["S", "L"]}},
        {"name": "tags", "type": {"type": "map", "values": ["int", "string"]}},
    ],
}
SCHEMA = AvroSchema.parse_string(json.dumps(ORDER))


def order(n: int) -> dict[str, Any]:
    return {
        "id": n,
        "item": None if n % 3 else f"i{n}",
        "at": 1000 * n,
        "size": "SL"[n % 2],
        "tags": {"a": n, "b": str(n)},
    }


def write_avro(path: Path, records: list[Any], **options: Any) -> None:
    with path.open("wb") as file:
        fastavro.writer(file, ORDER, records, **options)


def avro_source(path: Path) -> fp.FileSource[Any]:
    return fp.FileSource.for_record_stream_format(AvroInputFormat(str(path), SCHEMA).format, str(path)).build()


class TestAvro:
    @settings(max_examples=25)
    @given(
        st.integers(0, 40),
        st.sampled_from(["null", "deflate", "bzip2"]),
        st.sampled_from([1, 60, 16_000]),
        st.integers(1, 50),
        st.integers(1, 3),
    )
    def test_what_fastavro_writes_is_read(self, tmp_path_factory, size, codec, interval, every, hint):
        """Wherever epochs and pieces are cut, from a saved position; logical types as they are stored, as in PyFlink."""
        directory = tmp_path_factory.mktemp("in")
        write_avro(directory / "a.avro", list(map(order, range(size))), codec=codec, sync_interval=interval)
        assert list(read(avro_source(directory), every, hint)) == list(map(order, range(size)))

    def test_a_job_from_avro_to_avro(self, tmp_path, engine):
        (tmp_path / "in").mkdir()
        for part in range(2):
            write_avro(tmp_path / "in" / f"{part}.avro", [order(2 * n + part) for n in range(20)], sync_interval=100)
        env = environment(engine, 2).set_max_epoch_rows(7)
        orders = env.create_input(AvroInputFormat(str(tmp_path / "in"), SCHEMA))
        doubled = orders.map(lambda e: {**e, "id": 2 * e["id"]}, output_type=GenericRecordAvroTypeInfo(SCHEMA))
        doubled.sink_to(fp.FileSink.for_bulk_format(str(tmp_path / "out"), AvroBulkWriters.for_generic_record(SCHEMA)).build())
        env.execute()
        found = []
        for path in files(tmp_path / "out"):
            with path.open("rb") as file:
                reader = fastavro.reader(file)
                assert reader.writer_schema["fields"][2]["type"]["logicalType"] == "timestamp-millis"
                found += [each["id"] for each in reader]
        assert sorted(found) == [2 * n for n in range(40)]

    def test_a_newer_schema_has_defaults_and_leaves_fields_out(self, tmp_path):
        write_avro(tmp_path / "a.avro", [order(1)])
        fields = [ORDER["fields"][0], {"name": "new", "type": "string", "default": "?"}]
        newer = AvroSchema.parse_string(json.dumps({**ORDER, "fields": fields}))
        source = fp.FileSource.for_record_stream_format(AvroInputFormat("", newer).format, str(tmp_path)).build()
        assert list(read(source)) == [{"id": 1, "new": "?"}]

    @pytest.mark.parametrize(
        ("damage", "problem"),
        [
            (lambda data: data[:-30], "cannot read the data after record"),
            (lambda data: data[:900] + b"\xff" * 40 + data[940:], "cannot read the data after record"),
            (lambda data: b"PK" + data, "not an Avro file"),
            (lambda data: data[:20], "not an Avro file"),
        ],
    )
    def test_damaged_files_are_named(self, tmp_path, damage, problem):
        write_avro(tmp_path / "a.avro", list(map(order, range(40))), sync_interval=100)
        (tmp_path / "a.avro").write_bytes(damage((tmp_path / "a.avro").read_bytes()))
        with pytest.raises(fp.RecordParseError, match=rf"a\.avro.*{problem}"):
            list(read(avro_source(tmp_path), 5))

    def test_what_the_schema_has_no_place_for(self, tmp_path):
        env = environment()
        sink = fp.FileSink.for_bulk_format(str(tmp_path), AvroBulkWriters.for_generic_record(SCHEMA)).build()
        env.from_collection([{**order(1), "size": "XL"}]).sink_to(sink)
        with pytest.raises(fp.TypeNotSupported, match=r"'XL'.* cannot be written by the Avro schema"):
            env.execute()
        with pytest.raises(fp.ConfigError, match="not an Avro schema"):
            AvroSchema.parse_string("{}")

    def test_other_inputs_are_refused(self):
        with pytest.raises(fp.GraphError, match="create_input"):
            environment().create_input(object())
        (schema,) = [AvroSchema.parse_string(str(SCHEMA))]
        assert json.loads(str(schema)) == ORDER
