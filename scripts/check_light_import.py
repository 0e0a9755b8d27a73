"""What `forkpoint` loads with its public names must stay light: no Spark, no server, no command line. So must a command that only
reads records, and the protocol of running jobs: no Arrow, no columns, no HTTP client.

The import contracts check the package's own imports; this checks what a fresh interpreter really loads.
"""

from __future__ import annotations

import subprocess
import sys

PUBLIC = "import forkpoint.public"
CLIENT = "import forkpoint.protocol.registry"
LIST = "from forkpoint.cli import main; from forkpoint.cli.commands import jobs; from forkpoint.operations import list_jobs"
READS_RECORDS = {
    "pyarrow",
    "numpy",
    "cloudpickle",
    "pyspark",
    "starlette",
    "uvicorn",
    "pydantic",
    "duckdb",
    "confluent_kafka",
    "httpx",
    "ssl",
}
HEAVY = {
    PUBLIC: {
        "pyspark",
        "starlette",
        "uvicorn",
        "click",
        "duckdb",
        "pandas",
        "rocksdict",
        "prometheus_client",
        "pydantic",
        "opentelemetry",
    },
    LIST: READS_RECORDS,
    CLIENT: READS_RECORDS | {"click", "rich", "prometheus_client"},
}


def loaded_by(statement: str) -> set[str]:
    """Top-level names in `sys.modules` after a statement in a fresh interpreter."""
    program = f"import sys; {statement}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True)
    return set(done.stdout.split())


def main() -> int:
    failed = False
    for statement, heavy in HEAVY.items():
        found = sorted(loaded_by(statement) & heavy)
        failed |= bool(found)
        if found:
            print(f"`{statement}` loads {', '.join(found)}. See how: python -X importtime -c '{statement}'")
        else:
            print(f"`{statement}` loads none of {', '.join(sorted(heavy))}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
