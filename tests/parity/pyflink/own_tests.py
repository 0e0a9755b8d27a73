"""Runs PyFlink's own tests on forkpoint, and writes how each of them ends to ``own_tests.json``.

    python tests/parity/pyflink/own_tests.py [--check] [--from CHECKOUT] [--tables] [PATTERN…]

The tests are those of the release, from Flink's repository: PyPI's source distribution has none. They are fetched with git
into ``.flink/tests`` (or taken from a checkout that is there already), run as they are and not kept. ``pyflink`` is
forkpoint's; what they need of PyFlink's test utilities and of the JVM is in ``own_tests_shim.py``. With ``--check`` nothing
is written, and the exit code tells whether every test ends as recorded. ``PATTERN``: only tests that have it in their name.
``--tables``: those of the Table API instead, recorded in ``own_table_tests.json``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
RECORDED = HERE / "own_tests.json"
RECORDED_OF_TABLES = HERE / "own_table_tests.json"
REPOSITORY = "https://github.com/apache/flink"
TAG = "release-2.3.0"
SECONDS = 120  # that a test may take

MODULES = (
    "common.tests.test_configuration",
    "common.tests.test_execution_config",
    "common.tests.test_serialization_schemas",
    "common.tests.test_typeinfo",
    "common.tests.test_watermark_strategy",
    "datastream.connectors.tests.test_file_system",
    "datastream.connectors.tests.test_seq_source",
    "datastream.formats.tests.test_avro",
    "datastream.formats.tests.test_csv",
    "datastream.formats.tests.test_json",
    "datastream.tests.test_async_function",
    "datastream.tests.test_check_point_config",
    "datastream.tests.test_checkpoint_storage",
    "datastream.tests.test_data_stream",
    "datastream.tests.test_slot_sharing_group",
    "datastream.tests.test_state_backend",
    "datastream.tests.test_stream_execution_environment",
    "datastream.tests.test_stream_execution_environment_completeness",
    "datastream.tests.test_window",
)

TABLE_MODULES = tuple(
    f"table.tests.test_{name}"
    for name in [
        "calc",
        "column_operation",
        "correlate",
        "dependency",
        "descriptor",
        "distinct",
        "environment_settings",
        "explain",
        "expression",
        "join",
        "pandas_conversion",
        "pandas_udaf",
        "pandas_udf",
        "row_based_operation",
        "schema",
        "schema_operation",
        "set_operation",
        "sort",
        "sql",
        "table_config",
        "table_descriptor",
        "table_environment_api",
        "table_pipeline",
        "table_schema",
        "types",
        "udaf",
        "udf",
        "udtf",
        "window",
    ]
)

# Tests that are about nothing of forkpoint's, by a part of their name: they are not run.
JAVA = "looks into Flink's Java objects"
TABLE = "is about the Table API"
WORKERS = "reads an environment variable of PyFlink's workers"
NOT_RELEVANT: dict[str, str] = {
    "test_serialization_schemas": "is about schemas of connectors for messages, which are Java objects",
    "test_from_java_type": JAVA,
    "test_watermark_strategy": JAVA,
    "ExecutionConfigTests.test_constant": JAVA,
    "connectors.tests.test_file_system": JAVA,
    "connectors.tests.test_seq_source": JAVA,
    "test_checkpoint_storage": JAVA,
    "test_state_backend": JAVA,
    "_completeness": JAVA,
    "CommonDataStreamTests.test_chaining_strategy": JAVA,
    "CommonDataStreamTests.test_keyed_stream_union": "looks for an operator that PyFlink adds to the plan for itself",
    "CommonDataStreamTests.test_slot_sharing_group": JAVA,
    "CommonDataStreamTests.test_logging_msg": "reads Flink's log files",
    "test_partition_custom": "runs a function in Java",
    "test_add_custom_source": "runs a source in Java",
    "test_run_async_function_in_thread_mode": "is about running Python within the JVM",
    "test_add_jars": JAVA,
    "test_add_classpaths": JAVA,
    "test_generate_stream_graph_with_dependencies": JAVA,
    "test_register_slot_sharing_group": JAVA,
    "test_register_cached_file": JAVA,
    "StreamExecutionEnvironmentTests.test_set_runtime_mode": JAVA,
    "test_set_stream_env": WORKERS,
    "StreamExecutionEnvironmentTests.test_add_python_file": TABLE,
    "StreamExecutionEnvironmentTests.test_execute.": TABLE,
    # of tables
    **dict.fromkeys((".test_column_operation", ".test_correlate", ".test_distinct.", ".test_join.", ".test_set_operation"), JAVA),
    **dict.fromkeys(
        (".test_sort.", "table.tests.test_window", ".test_explain.Stream", ".test_expression.", "_from_json_plan"), JAVA
    ),
    **dict.fromkeys(("CalcTests.test_select", "CalcTests.test_alias", "CalcTests.test_where", "CalcTests.test_filter"), JAVA),
    **dict.fromkeys(("java_", "module", "test_register_functions"), JAVA),
    **dict.fromkeys(("EnvironmentSettingsTests.test_with_built_in_", "test_set_sys_executable"), JAVA),
    **dict.fromkeys(("test_table_pipeline_compile", "test_table_from_descriptor", "test_sql_ddl"), JAVA),
    **dict.fromkeys(("_table_from_descriptor", "exists_from_descriptor"), "asks Flink's catalogue"),
    **dict.fromkeys(("DependencyTests.test_set_requirements_without", "DependencyTests.test_set_environment"), WORKERS),
    "EmbeddedThreadDependencyTests": "is about running Python within the JVM",
    "table.tests.test_types": "is about PyFlink's own classes of types, and how it infers and verifies them",
    "table.tests.test_descriptor": "is about descriptors that Flink has replaced",
    "EmbeddedThreadTests": "is about running Python within the JVM",
    **dict.fromkeys(("test_deterministic", "test_name", "test_using_decorator"), "looks into PyFlink's wrapper of functions"),
    "UserDefinedFunctionTests.test_scalar_function": WORKERS,
    "TableSchemaTests.test_copy": JAVA,
    "TableEnvironmentTest.test_udt.": "is about user-defined types, which Flink has for Java",
}
# Modules of tests that aren't looked at: table, dataframe and ml (other APIs), fn_execution and metrics (inside of PyFlink's
# workers), test_parquet and test_orc of datastream.formats (which PyFlink skips without Hadoop), the other connectors (Java's),
# util.

# Why tests don't pass that are about something of forkpoint's.
REASONS: dict[str, str] = {
    "CommonDataStreamTests.test_execute_and_collect": "PyFlink gives `Row(key, element)` for a keyed stream, forkpoint elements",
    "AsyncFunctionTests.test_none_result": "None stands for no results; PyFlink fails",
    "test_from_collection_with_data_types": "values that a type cannot hold are refused; PyFlink gives other numbers",
    "test_session_window_late_merge": "watermarks are as if after each element; PyFlink's clock ticks after the last one only",
}

REASONS_OF_TABLES: dict[str, str] = {
    "CalcTests.test_from_element": "a column has no type of the program",
    "test_check_result_type": "an aggregate over pandas columns may also return a MAP",
    "test_non_exist_func_type": "a function may also be of Arrow's columns: the message differs",
    "test_to_string": "options have the order of the program, not that of a Java map",
    "test_from_data_stream_atomic": "elements without a type have those of their values; PyFlink pickles them",
    **dict.fromkeys(
        ("test_to_retract_stream", "test_collect_with_retract", "test_mixed_with_built_in_functions_with"),
        "an epoch has net changes only, which add and remove rows",
    ),
    "test_udf_with_constant_params": "`CAST(1.05 AS DECIMAL)` is a DECIMAL(10, 0), for functions, too",
}


def fetched(directory: Path) -> Path:
    """The release's ``flink-python``, without what isn't needed."""
    if not (directory / "flink-python").is_dir():
        options = ["--quiet", "--depth", "1", "--filter=blob:none", "--sparse", "--branch", TAG]
        subprocess.run(["git", "-c", "advice.detachedHead=false", "clone", *options, REPOSITORY, directory], check=True)
        subprocess.run(["git", "-C", directory, "sparse-checkout", "set", "flink-python/pyflink"], check=True)
    return directory / "flink-python" / "pyflink"


def build_tools(directory: Path) -> str:
    """What pip builds the package of a test with."""
    if not directory.is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", directory]
        subprocess.run([*pip, "setuptools", "wheel", "pytz"], check=True)
    return str(directory)


def load(tests: Path, name: str) -> ModuleType:
    """A test module under its own name, whose parents are forkpoint's."""
    full = f"pyflink.{name}"
    path = tests / f"{name.replace('.', '/')}.py"
    spec = importlib.util.spec_from_file_location(full, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    spec.loader.exec_module(module)
    return module


def cases(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from cases(each)
        else:
            yield each


def tests_of(tests: Path, name: str) -> dict[str, unittest.TestCase | str]:
    """The tests of a module by name; the error where it can't be loaded."""
    try:
        module = load(tests, name)
    except Exception:
        return {name: traceback.format_exc()}
    found = unittest.defaultTestLoader.loadTestsFromModule(module)
    return {f"{name}.{type(case).__name__}.{case._testMethodName}": case for case in cases(found)}


def outcome(case: unittest.TestCase) -> str:
    """ "passed", "skipped" where PyFlink itself skips it, or the last line of what went wrong."""

    def too_long(*_: Any) -> None:
        raise TimeoutError(f"not done after {SECONDS} s")

    result = unittest.TestResult()
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS)
    try:
        with tempfile.TemporaryFile("w+") as out:
            kept, sys.stdout = sys.stdout, out
            try:
                unittest.TestSuite([case]).run(result)
            finally:
                sys.stdout = kept
    finally:
        signal.alarm(0)
    if result.skipped:
        return f"skipped: {result.skipped[0][1]}"
    for _, trace in (*result.errors, *result.failures):
        return last_line(trace)
    return "passed"


def in_a_process(case: unittest.TestCase) -> str:
    """``outcome`` of a test that loads modules by names that others have, too."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, outcome(case).encode())
        os._exit(0)
    os.close(write)
    with open(read, encoding="utf-8") as found:
        how = found.read()
    os.waitpid(pid, 0)
    return how


def last_line(trace: str) -> str:
    lines = [line for line in trace.splitlines() if line and not line.startswith((" ", "Traceback", "During", "The above"))]
    return lines[0] if lines else trace.strip().splitlines()[-1]


def said(table: dict[str, str], name: str) -> str | None:
    return next((why for part, why in table.items() if part in f"{name}."), None)


def run(tests: Path, modules: Sequence[str], patterns: list[str]) -> dict[str, str]:
    """How each relevant test ends."""
    found: dict[str, str] = {}
    for module in ("table.tests.test_types", "table.tests.test_udf") if modules is TABLE_MODULES else ():
        load(tests, module)  # other modules import it
    for module in modules:
        if said(NOT_RELEVANT, module) is not None:
            continue
        for name, case in tests_of(tests, module).items():
            if said(NOT_RELEVANT, name) is not None or not any(pattern in name for pattern in patterns):
                continue
            started = time.monotonic()
            run_one = in_a_process if "test_dependency" in name else outcome
            how = case if isinstance(case, str) else run_one(case)
            if not how.startswith("skipped"):
                found[name] = how
            print(f"{name}: {how} ({time.monotonic() - started:.1f} s)", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, compare with what is recorded")
    parser.add_argument("--from", dest="checkout", type=Path, help="a checkout of Flink's repository")
    parser.add_argument("--tables", action="store_true", help="the tests of the Table API")
    parser.add_argument("patterns", nargs="*", help="all of them by default")
    arguments = parser.parse_args()
    tests = fetched(arguments.checkout or HERE.parents[2] / ".flink" / "tests")
    os.environ["FORKPOINT_ENGINE"] = "local"
    tools = build_tools(HERE.parents[2] / ".flink" / "build-tools")
    os.environ["PYTHONPATH"] = os.pathsep.join([tools, os.environ.get("PYTHONPATH", "")])
    sys.path.append(tools)
    warnings.simplefilter("ignore")
    import own_tests_shim

    own_tests_shim.install()
    recorded_in = RECORDED_OF_TABLES if arguments.tables else RECORDED
    found = run(tests, TABLE_MODULES if arguments.tables else MODULES, arguments.patterns or [""])
    passed = sum(how == "passed" for how in found.values())
    print(f"{passed} of {len(found)} relevant tests pass ({100 * passed / max(1, len(found)):.1f} %)")
    reasons = REASONS_OF_TABLES if arguments.tables else REASONS
    recorded = {name: how if how == "passed" else said(reasons, name) for name, how in found.items()}
    unexplained = [f"{name}: {found[name]}" for name, how in recorded.items() if how is None]
    if arguments.check or arguments.patterns:
        before = json.loads(recorded_in.read_text())
        unexplained += [
            f"{name}: {how}; recorded: {before.get(name)}" for name, how in recorded.items() if how != before.get(name)
        ]
    elif not unexplained:
        recorded_in.write_text(json.dumps(recorded, indent=1) + "\n")
    if unexplained:
        sys.exit("\n".join(unexplained))


if __name__ == "__main__":
    main()
