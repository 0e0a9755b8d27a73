"""Names with slashes, and what a job that has begun with nothing says about itself."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest
from rest_server import READ, Server, result

NAME, UID, STATE = "job with spaces/slash", "a/b %2F ü", "s/t%252f"
JOB = f"""
import forkpoint as fp


class Keep(fp.KeyedProcessFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(fp.ValueStateDescriptor({STATE!r}, float))

    def process_element(self, value, ctx):
        self.seen.update(float("nan") if value % 2 else float("inf"))
        yield value


env = fp.StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(50)
numbers = env.from_source(fp.CounterSource(per_epoch=10), fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
kept = numbers.key_by(lambda n: n % 4, int).process(Keep(), int).uid({UID!r})
kept.sink_to(fp.DiscardSink()).uid("out")
keys = [(1, "a"), [2, "b"], "text", 7]
anything = numbers.key_by(lambda n: keys[n % 4], fp.Types.ANY()).map_with_state(lambda n, c: (n, (c or 0) + 1), int).uid("any")
anything.sink_to(fp.DiscardSink()).uid("others")
env.execute({NAME!r})
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("odd")
    (directory / "odd.py").write_text(JOB)
    made = Server(directory)
    made.forkpoint("run", "-d", "odd.py")
    try:
        yield made
    finally:
        for view in made.forkpoint("list")["jobs"]:
            os.kill(view["pid"], 9)
        made.close()


@pytest.fixture
def http(server: Server) -> httpx.Client:
    return server.client()


def path(*segments: str) -> str:
    return "/v1/" + "/".join(quote(each, safe="") for each in segments)


@pytest.mark.slow
def test_names_with_slashes_are_segments_of_paths(server, http):
    assert http.get(path("jobs", NAME, "status")).json() == {"status": "RUNNING"}
    assert http.get(path("jobs", NAME)).json()["name"] == NAME
    assert http.get(path("jobs", NAME, "state", UID, STATE)).json()["state"] == STATE
    assert http.get(path("jobs", NAME, "vertices", UID)).json()["name"]
    taken = {"triggerId": "a/b%2F", "label": "saved"}
    made = http.post(path("jobs", NAME, "savepoints"), json=taken)
    result(http, httpx.Response(202, json={"request-id": quote(made.json()["request-id"], safe="")}))
    assert http.get(path("jobs", NAME, "savepoints", "a/b%2F")).json()["status"] == {"id": "COMPLETED"}
    assert http.get(path("catalog", "savepoints", "saved", "states", UID, STATE)).json()["uid"] == UID


@pytest.mark.parametrize(
    "given",
    [
        "jobs%2Foverview",
        "jobs/x%2Foverview",
        "jobs%2f..%2fconfig",
        "%2F",
        "jobs/%2e%2e%2Fconfig",
        "jobs%252Foverview",
        "jobs/%252e%252e/config",
    ],
)
def test_an_encoded_slash_separates_nothing(http, given):
    reply = http.get(f"/v1/{given}")
    assert reply.status_code == 404, reply.text
    assert "\\u" not in reply.text


def test_an_encoded_slash_gives_no_rights(server):
    with server.client(READ) as http:
        for given in ("jobs/x/stop%2Fquery", f"{path('jobs', NAME)[4:]}/stop%2fdiffs", "programs%2Fquery"):
            assert http.post(f"/v1/{given}", json={}).status_code == 403, given
    with server.client(None) as http:
        for given in ("/%2Fready", "/ready%2F", "/index.html%2F..%2Fv1%2Fjobs", "/main.js%2f"):
            assert http.get(given).status_code == 401, given
    notes = [json.loads(line)["path"] for line in (server.root / "audit.log").read_text().splitlines()]
    assert "/v1/jobs/x/stop%2Fquery" in notes


@pytest.mark.slow
def test_a_job_that_began_with_nothing_has_restored_nothing(http):
    found = http.get(path("jobs", NAME, "checkpoints")).json()
    assert found["counts"]["completed"] > 0
    assert found["counts"]["restored"] == 0
    assert found["latest"]["restored"] is None


@pytest.mark.parametrize(
    ("key", "shown"), [('[1, "a"]', [1, "a"]), ('[2, "b"]', [2, "b"]), ("text", "text"), ('"text"', "text"), ("7", 7)]
)
def test_keys_of_any_type_are_looked_up(http, key, shown):
    (row,) = http.get(path("jobs", NAME, "state", "any", "state"), params={"key": key}).json()["rows"]
    assert row["key"] == shown
    assert row["value"] > 0


@pytest.mark.parametrize("key", ["01", str(2**63), "x"])
def test_what_is_no_key_of_the_type_is_refused(http, key):
    refused = http.get(path("jobs", NAME, "state", UID, STATE), params={"key": key})
    assert refused.status_code == 400
    assert refused.json()["errors"] == [f"{key!r} is not a key of type LONG; write it as JSON"]


@pytest.mark.slow
def test_numbers_that_json_lacks_are_as_the_command_prints_them(server, http):
    result(http, http.post(path("jobs", NAME, "savepoints"), json={"label": "numbers"}))
    rows = http.get(path("catalog", "savepoints", "numbers", "states", UID, STATE)).json()["rows"]
    assert {row["value"] for row in rows} == {"NaN", "Infinity"}
    printed = server.forkpoint("state", "get", "numbers", UID, STATE)["rows"]
    assert sorted(map(str, printed)) == sorted(map(str, rows))
    sql = {"sql": "SELECT 'nan'::DOUBLE AS a, '-inf'::DOUBLE AS b"}
    assert http.post(path("catalog", "savepoints", "numbers", "query"), json=sql).json()["rows"] == [["NaN", "-Infinity"]]
