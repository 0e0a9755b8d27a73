"""How long a job commits nothing while its program is replaced.

    python benchmarks/upgrading.py                                1 million keys, 10 upgrades, the local engine
    python benchmarks/upgrading.py --engine spark --upgrades 5

The job of failover.py is filled with every key once, and goes on with small epochs at a steady pace. Then its program is
replaced again and again, with `forkpoint upgrade` and a trial of three epochs. The downtime lasts from the last commit of one
version to the first commit of the next, so it contains one epoch. In the end every number must be in the output once, with its
count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from failover import JOB, STEADY_ROWS, Job

from forkpoint import operations

SETTLE_SECONDS = 5.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=["local", "spark"], default="local")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--upgrades", type=int, default=10)
    parser.add_argument("--stop-first", action="store_true", help="the way with a savepoint, for comparison")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="forkpoint-upgrading-") as home:
        job = Job(Path(home), given.engine, given.keys)
        job.fill()
        job.wait_for_epoch_of(job.start(STEADY_ROWS)["run"])
        downtimes: list[float] = []
        for number in range(given.upgrades):
            time.sleep(SETTLE_SECONDS)
            began = time.monotonic()
            done = json.loads(job.command("upgrade", *(["--stop-first"] if given.stop_first else []), JOB, "app.py"))
            downtimes.append(done["downtime_ms"] / 1000)
            took = time.monotonic() - began
            print(f"upgrade {number + 1}: {downtimes[-1]:.2f} s of {took:.1f} s in all", flush=True)
        gaps = job.gaps()
        operations.cancel(JOB, state_root=job.root)
        rows = job.check()
    print(
        f"{given.keys:,} keys, {given.engine}: downtime median {statistics.median(downtimes):.2f} s, max {max(downtimes):.2f} s; "
        f"without an upgrade {statistics.median(gaps):.2f} s from commit to commit; {rows:,} rows, none lost or repeated"
    )


if __name__ == "__main__":
    main()
