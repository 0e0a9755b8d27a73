"""Tables as Spark reads them: an older Spark than forkpoint's, as Delta and Iceberg follow its releases with a delay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from servers.jars import BUILD, downloaded, jars
from table_reading import in_order

HERE = Path(__file__).parent
PYSPARK = "pyspark==4.1.4"


def older_pyspark() -> Path:
    """The directory with its packages, which the first call downloads. Skips the test where that is impossible."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", PYSPARK]
    place = BUILD / "lakehouse" / PYSPARK
    return downloaded(place, lambda into: [*command, "--target", str(into)], f"pip cannot install {PYSPARK}")


def read_by_spark(kind: str, places: list[Path]) -> list[list[dict[str, Any]]]:
    """The rows of tables, in some order that depends on them only; dates, times and decimals as text."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment |= {"PYTHONPATH": str(older_pyspark()), "TZ": "UTC", "PYSPARK_PYTHON": sys.executable}
    libraries = jars("lakehouse", HERE / "lakehouse.xml")
    program = [sys.executable, str(HERE / "spark_reader.py"), str(libraries), kind, *map(str, places)]
    done = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    tables = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return list(map(in_order, tables))
