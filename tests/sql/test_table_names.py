"""Names and forms that programs written for PyFlink use: catalogues, schemas, configurations, frames of ROWs."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

import forkpoint as fp
from forkpoint import DataTypes, Row, col
from forkpoint.errors import WrongType
from forkpoint.pyflink.tables import TableEnvironment
from forkpoint.table.api.catalogs import CatalogDescriptor, ObjectPath
from forkpoint.table.api.resolved_schema import TableSchema
from forkpoint.table.api.settings import SqlDialect, TableConfig

PAIR = DataTypes.ROW([DataTypes.FIELD("c", DataTypes.INT()), DataTypes.FIELD("d", DataTypes.FLOAT())])
PAIRS = DataTypes.ROW([DataTypes.FIELD("a", DataTypes.TINYINT()), DataTypes.FIELD("b", PAIR)])


@pytest.fixture
def tables() -> TableEnvironment:
    return TableEnvironment.create(fp.EnvironmentSettings.in_streaming_mode())


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
