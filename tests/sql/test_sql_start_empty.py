"""A changed query whose state does not fit starts empty, if that is accepted by name."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sql_job import SqlJob
from sql_results import answered
from test_sql_changes import ROWS, run

import forkpoint as fp
from forkpoint.errors import RestoreRefused
from forkpoint.testing import ABORT, EOF, PAUSE

OLD, NEW = (
    f"SELECT g, COUNT(*) AS n FROM (SELECT k, g, COUNT(*) AS m FROM orders WHERE {where} GROUP BY k, g) AS o GROUP BY g"
    for where in ("v > 0", "v IS NOT NULL")
)
INNER, OUTER = "totals-group-by-g-k", "totals-group-by-g"


def accepting(*uids: str) -> fp.RestoreOptions:
    return fp.RestoreOptions(accept_empty=uids)


def folded(changes: list[dict[str, Any]]) -> Counter[Any]:
    rows: Counter[Any] = Counter()
    for change in changes:
        rows[change["g"], change["n"]] += change["$weight"]
    assert min(rows.values(), default=0) >= 0
    return +rows


def test_the_state_is_that_of_the_rows_since_then(tmp_path: Path) -> None:
    first, script = ROWS[:12], [*ROWS[:12], PAUSE, EOF]
    run(OLD, script, tmp_path, 3)
    with pytest.raises(RestoreRefused, match=f"{OUTER}/groups"):
        run(NEW, script, tmp_path, 3, accepting(INNER, "anything"))  # what reads it would count rows twice
    more = [*ROWS[5:20], *first]
    script += [ABORT, *more[:4], ABORT, *more[4:9], PAUSE, *more[9:], PAUSE, EOF]
    changes = run(NEW, script, tmp_path, 1, accepting(INNER, OUTER))
    assert folded(changes) == answered(NEW, more)
    script += [ABORT, *first, PAUSE, EOF]
    changes += run(NEW, script, tmp_path, 3, accepting(INNER, OUTER))  # nothing is refused now, so all state stays
    assert folded(changes) == answered(NEW, [*more, *first])


COUNTED = "SELECT k, g, COUNT(*) AS n FROM orders GROUP BY k, g"


@pytest.mark.parametrize(
    ("old", "new", "accepted", "message"),
    [
        ("SELECT k, v FROM orders", COUNTED, (), "totals-group-by-g-k/groups .* has read rows of 'orders' before; compute"),
        (
            f"SELECT n, k FROM ({COUNTED}) AS o",
            f"SELECT n, COUNT(*) AS m FROM ({COUNTED}) AS o GROUP BY n",
            ("totals-group-by-count_6ba22a",),
            "totals-group-by-count_6ba22a/groups .* cannot start empty: 'totals-group-by-g-k' would remove rows",
        ),
        (
            f"SELECT n, COUNT(*) AS m FROM ({COUNTED}) AS o GROUP BY n",
            f"SELECT n, COUNT(*) AS m FROM ({COUNTED} HAVING COUNT(*) > 1) AS o GROUP BY n",
            ("totals-group-by-count_6ba22a",),
            "totals-group-by-count_6ba22a/groups .* cannot start empty",
        ),
        (
            "SELECT a.v FROM orders AS a JOIN (SELECT k, SUM(v) AS n FROM orders GROUP BY k) AS b ON a.k = b.k AND n > 0",
            "SELECT a.v FROM orders AS a JOIN (SELECT k, COUNT(*) AS n FROM orders GROUP BY k) AS b ON a.k = b.k AND n > 0",
            (),
            r"came from orders, in which the calls of AGGREGATE were SUM\(v\) and would be COUNT\(\*\); compute",
        ),
    ],
)
def test_what_lacks_rows_from_before_is_refused(
    old: str, new: str, accepted: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    """An operator that is new has not seen them, and one that starts empty cannot take them back."""
    script = [*ROWS[:4], PAUSE, EOF]
    run(old, script, tmp_path)
    with pytest.raises(RestoreRefused, match=message):
        run(new, script, tmp_path, 1, accepting(*accepted))


APP = """
SET 'execution.engine' = 'local';
CREATE TABLE orders (k STRING, v BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'orders', 'format' = 'json', 'source.monitor-interval' = '50 ms');
CREATE TABLE counts (k STRING, n BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'counts');
CREATE TABLE sums (k STRING, s BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'sums');
INSERT INTO counts SELECT k, COUNT(*) FROM orders GROUP BY k;
INSERT INTO sums SELECT k, SUM(v) FROM orders GROUP BY k;
"""


def test_a_job_goes_on_without_the_state_of_one_query(tmp_path: Path) -> None:
    job, uid = SqlJob(tmp_path), "sums-group-by-k"
    (tmp_path / "orders").mkdir()

    def order(number: int, value: int) -> None:
        """Write an order, and wait until the job has counted it."""
        (tmp_path / "orders" / f"{number}.json").write_text(json.dumps({"k": "ann", "v": value}))
        job.wait_until(lambda: f"counts> +I[ann, {number}]" in (tmp_path / "log").read_text(), True)

    job.write_file(APP)
    job.start()
    order(1, 50)
    job.stop()
    job.write_file(APP.replace("SUM(v)", "MAX(v)"))
    refused = job.command("check", "app.sql")
    assert (refused.returncode, "--accept UID=empty" in refused.stdout) == (4, True)
    accepted = job.command("--output", "json", "check", "app.sql", "--accept", f"{uid}=empty")
    rows = {row["uid"]: row["outcome"] for row in json.loads(accepted.stdout)["rows"] if row["subject"] == "state"}
    assert (accepted.returncode, rows) == (0, {uid: "dropped", "counts-group-by-k": "restored"})
    job.start("--accept", f"{uid}=empty")
    order(2, 30)
    job.kill()
    job.start("--accept", f"{uid}=empty")  # as a supervisor does
    order(3, 20)
    job.stop()
    changes = {line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("sums> ")}  # some twice
    assert changes == {"sums> +I[ann, 50]", "sums> +I[ann, 30]"}
    nodes = json.loads(job.command("--output", "json", "tree", "app").stdout)["nodes"]
    assert [node["emptied"] for node in reversed(nodes) if node["kind"] == "run"] == [[], [uid], []]
    assert f"with empty state of {uid}" in job.command("tree", "app").stdout
