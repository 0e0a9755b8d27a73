"""What `forkpoint` loads with its first name must stay light: no Spark, no server, no command line.

The import contracts check the package's own imports; this checks what a fresh interpreter really loads.
"""

from __future__ import annotations

import subprocess
import sys

HEAVY = (
    "pyspark",
    "starlette",
    "uvicorn",
    "click",
    "duckdb",
    "pandas",
    "rocksdict",
    "prometheus_client",
    "opentelemetry",
)


def loaded_by_import() -> set[str]:
    """Top-level names in `sys.modules` after the first use of `forkpoint` in a fresh interpreter."""
    program = "import sys, forkpoint.public; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True)
    return set(done.stdout.split())


def main() -> int:
    found = sorted(loaded_by_import() & set(HEAVY))
    if found:
        print(
            f"`import forkpoint` loads {', '.join(found)}. See how: python -X importtime -c 'import forkpoint.public'"
        )
        return 1
    print(f"`import forkpoint` loads none of {', '.join(HEAVY)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
