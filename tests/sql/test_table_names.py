"""Names and forms that programs written for PyFlink use: catalogues, schemas, configurations, frames of ROWs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import forkpoint as fp
from forkpoint import DataTypes, Row, RowKind, col
from forkpoint.errors import WrongType
from forkpoint.pyflink.tables import EnvironmentSettings, StreamTableEnvironment, TableEnvironment
from forkpoint.table.api.catalogs import CatalogDescriptor, ObjectPath
from forkpoint.table.api.resolved_schema import TableSchema
from forkpoint.table.api.settings import SqlDialect, TableConfig

PAIR = DataTypes.ROW([DataTypes.FIELD("c", DataTypes.INT()), DataTypes.FIELD("d", DataTypes.FLOAT())])
PAIRS = DataTypes.ROW([DataTypes.FIELD("a", DataTypes.TINYINT()), DataTypes.FIELD("b", PAIR)])


@pytest.fixture
def tables() -> TableEnvironment:
    local = fp.Configuration().set_string("execution.engine", "local")
    return TableEnvironment.create(fp.EnvironmentSettings.new_instance().with_configuration(local).build())


def values(table: fp.Table) -> list[Any]:
    return sorted(table.execute().collect(), key=repr)


def test_a_row_is_a_frame_for_pandas_and_a_frame_a_row(tables: TableEnvironment) -> None:
    table = tables.from_elements([(1, Row(2, 1.23)), (2, Row(3, 0.5))], PAIRS)
    flat = fp.udf(lambda frame: pd.concat([frame.a, frame.c + 1], axis=1), result_type="ROW<x INT, y INT>", func_type="pandas")
    assert values(table.map(flat)) == [Row(1, 3), Row(2, 4)]
    same = fp.udf(lambda pair: pair[["c", "d"]], result_type=PAIR, func_type="pandas")
    assert values(table.select(same(col("b")))) == [Row(Row(2, 1.23)), Row(Row(3, 0.5))]  # a FLOAT has the digits that it has
    one = fp.udf(lambda pair: pair[["c"]], result_type=PAIR, func_type="pandas")
    with pytest.raises(fp.UserFunctionError, match="a DataFrame with 1 columns"):
        values(table.select(one(col("b"))))


def test_values_of_other_types_are_refused_at_once(tables: TableEnvironment) -> None:
    with pytest.raises(WrongType, match=r"from_elements\(\).*is not a value of"):
        tables.from_elements([(1, Row("a", 1.0))], PAIRS)
    with pytest.raises(fp.ConfigError, match="column 'k' of the frame does not fit the schema: Expected a string"):
        tables.from_pandas(pd.DataFrame({"k": [1, 2]}), DataTypes.ROW([DataTypes.FIELD("k", DataTypes.STRING())]))


def test_catalogues_and_sinks_have_names(tables: TableEnvironment) -> None:
    tables.create_catalog("it's", CatalogDescriptor.of("c", fp.Configuration().set_string("type", "generic_in_memory")))
    catalog = tables.get_catalog("it's")
    assert catalog.database_exists(catalog.get_default_database())
    tables.execute_sql("CREATE TABLE `it's`.`default`.t (a INT) WITH ('connector' = 'blackhole')")
    assert catalog.table_exists(ObjectPath("default", "t"))
    sink = tables.from_elements([(1,)], ["a"]).select(col("a").cast(DataTypes.INT())).insert_into("`it's`.`default`.t")
    assert str(sink.get_sink_identifier()) == "it's.default.t"
    with pytest.raises(fp.ConfigError, match="there is no catalogue 'c'"):
        tables.get_catalog("c")


def test_former_schemas_and_configurations(tables: TableEnvironment) -> None:
    schema = tables.from_elements([(1, "a")], ["n", "k"]).get_schema()
    assert schema == TableSchema.builder().field("n", DataTypes.BIGINT()).field("k", DataTypes.STRING()).build()
    assert str(schema) == "root\n |-- n: BIGINT\n |-- k: STRING\n"
    assert schema.get_field_data_type("k") == DataTypes.STRING()
    config = TableConfig.get_default()
    config.set_sql_dialect(SqlDialect.HIVE)
    config.set_local_timezone("Asia/Shanghai")
    assert (config.get_sql_dialect(), config.get_local_timezone()) == (SqlDialect.HIVE, "Asia/Shanghai")
    for key, value in config.get_configuration().to_dict().items():
        with pytest.raises(fp.ConfigError, match=key):
            tables.get_config().set(key, value)


@pytest.fixture
def streams() -> StreamTableEnvironment:
    settings = EnvironmentSettings.new_instance().in_streaming_mode().use_blink_planner().build()
    return StreamTableEnvironment.create(None, settings)


def of_kind(kind: RowKind, *values: Any) -> Row:
    return Row.of_kind(kind, *values)


@pytest.mark.parametrize("upserts", [False, True])
def test_given_rows_have_kinds_whatever_their_type(streams: StreamTableEnvironment, upserts: bool) -> None:
    rows = [
        of_kind(RowKind.INSERT, "ann", 12),
        of_kind(RowKind.INSERT, "bob", 5),
        *([] if upserts else [of_kind(RowKind.UPDATE_BEFORE, "ann", 12)]),
        of_kind(RowKind.UPDATE_AFTER, "ann", 100),
        of_kind(RowKind.DELETE, "bob", 5),
    ]
    stream = streams._session.env.from_collection(rows, type_info=fp.Types.ROW([fp.Types.STRING(), fp.Types.INT()]))
    upsert = (fp.Schema.new_builder().primary_key("f0").build(), fp.ChangelogMode.upsert()) if upserts else ()
    streams.register_table("t", streams.from_changelog_stream(stream, *upsert))
    totals = streams.sql_query("SELECT f0, SUM(f1) FROM t GROUP BY f0")
    schema = fp.Schema.new_builder().column("name", "STRING").column_by_expression("twice", "2").column("total", "BIGINT").build()
    with streams.to_changelog_stream(totals, schema, fp.ChangelogMode.all()).execute_and_collect() as changes:
        assert [(row.name, row.total, row.get_row_kind()) for row in changes] == [("ann", 100, RowKind.INSERT)]
    with pytest.raises(fp.ConfigError, match="added and removed rows"):
        streams.to_changelog_stream(totals, None, fp.ChangelogMode.insert_only())


def test_files_of_csv_are_as_flinks(tables: TableEnvironment, tmp_path: Path, capfd: Any) -> None:
    """Without a line of names; and a table that is written has the columns of what is written, unless it declares some."""
    (tmp_path / "given.csv").write_text("a;1\nb;2\n")
    options = "'connector' = 'filesystem', 'format' = 'csv', 'csv.field-delimiter' = ';'"
    tables.execute_sql(f"CREATE TABLE given (k STRING, v INT) WITH ({options}, 'path' = 'file://{tmp_path / 'given.csv'}')")
    options += f", 'path' = '{tmp_path / 'out'}', 'sink.rolling-policy.rollover-interval' = '1 min'"
    tables.execute_sql(f"CREATE TABLE `out` (k STRING, v INT) WITH ({options})")
    with pytest.warns(UserWarning, match="option 'sink.rolling-policy.rollover-interval' has no effect here"):
        tables.scan("given").execute_insert("`out`").wait()
    assert sorted(line for file in (tmp_path / "out").glob("part*") for line in file.read_text().splitlines()) == [
        '"a";1',
        '"b";2',
    ]
    tables.from_path("`out`").execute_insert(fp.TableDescriptor.for_connector("print").build()).wait()
    assert sorted(capfd.readouterr().out.split("\n")[:2]) == ["+I[a, 1]", "+I[b, 2]"]
