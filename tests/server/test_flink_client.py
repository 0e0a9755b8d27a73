"""Flink's own client works with the server: it lists, saves and stops a job."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from rest_server import OPERATE

from servers.jars import QUICK_JVM, compiled, jars, java

HERE = Path(__file__).parent / "flink"
METRICS = [
    ["metrics", "true"],
    ["found", "1 true"],
    ["subtasks", "true null"],
    ["restarts", "0"],
    ["completed", "true"],
]


def test_flinks_client_lists_saves_and_stops_a_job(server):
    libraries = jars("flink-client", HERE / "pom.xml")
    classes = compiled(HERE / "FlinkClient.java", f"{libraries}/*")
    command = [
        java(),
        *QUICK_JVM,
        "--add-opens",
        "java.base/java.util=ALL-UNNAMED",
        "-cp",
        f"{classes}:{libraries}/*",
        "FlinkClient",
    ]
    environment = os.environ | {"FLINK_REST_CLIENT_HEADERS": f"Authorization:Bearer {OPERATE}"}
    host, port = server.url.removeprefix("http://").split(":")
    done = subprocess.run([*command, host, port], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    said = [line.split(" ", 1) for line in done.stdout.splitlines()]
    assert [line for line in said if line[0] not in ("savepoint", "stopped")] == [
        ["listed", "counting RUNNING"],
        ["status", "RUNNING"],
        ["vertices", "3"],
        *METRICS * 3,
        ["disposed", "Acknowledge"],
        ["status", "FINISHED"],
    ]
    saved = {name: place for name, place in said if name in ("savepoint", "stopped")}
    assert not (Path(saved["savepoint"]) / "savepoint.json").exists()
    assert (Path(saved["stopped"]) / "savepoint.json").is_file()
