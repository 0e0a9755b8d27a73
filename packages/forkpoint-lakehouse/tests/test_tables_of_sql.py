"""Both kinds of table as tables of SQL."""

from __future__ import annotations

from pathlib import Path

import forkpoint as fp
from table_jobs import catalog
from table_reading import rows


def test_results_of_queries_are_appended_or_replaced_by_key(kind: str, place: Path) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_max_epoch_rows(1)
    tables = fp.StreamTableEnvironment.create(env)
    changes = [("INSERT", 1, "a"), ("INSERT", 2, "a"), ("INSERT", 3, "b"), ("DELETE", 1, "a"), ("DELETE", 3, "b")]
    schema = fp.Schema.new_builder().column("id", "BIGINT").column("k", "STRING").build()
    stream = env.from_collection([fp.Row.of_kind(fp.RowKind[kind], *values) for kind, *values in changes], fp.Types.ANY())
    tables.create_temporary_view("t", tables.from_changelog_stream(stream, schema))
    for name, key in (("counts", ", PRIMARY KEY (k) NOT ENFORCED"), ("plain", "")):
        (directory := place / name).mkdir()
        options = {"connector": kind, "table-path": str(directory)}
        if kind == "iceberg":
            properties = catalog(str(directory))
            options = {"connector": kind, "catalog-type": properties.pop("type"), "catalog-database": "ns", **properties}
            options["catalog-table"] = "counts"
        listed = ", ".join(f"'{option}' = '{value}'" for option, value in options.items())
        tables.execute_sql(f"CREATE TABLE {name} (k STRING, n BIGINT{key}) WITH ({listed})")
    statements = tables.create_statement_set()
    statements.add_insert_sql("INSERT INTO counts SELECT k, COUNT(*) FROM t GROUP BY k")
    statements.add_insert_sql("INSERT INTO plain VALUES ('x', 1), ('y', 2)")
    statements.execute().wait()
    assert rows(kind, place / "counts") == [("a", 1)]
    assert rows(kind, place / "plain") == [("x", 1), ("y", 2)]
