"""The REST API over a real job: Flink's paths, and forkpoint's own."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import click
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from rest_server import JOB, OPERATE, Server, result

from forkpoint.cli import main
from forkpoint.cli.defaults import commands_of as commands_in
from forkpoint.operations.roots import StateRoot
from forkpoint.server.app import commands_of, described, make_api
from forkpoint.server.context import Context
from forkpoint.server.requests import Requests
from forkpoint.server.service import Service, job_id

LOCAL = {
    "server": "is the server itself",
    "completion": "is about a shell",
    "config show": "is about this machine's files and variables",
    "plan": "compares two programs before either has a job",
    "recompute": "runs a program of this machine",
    "supervise": "keeps a process of this machine running; a server's jobs are started with run",
    "import-spark-checkpoint": "reads from a path that is not below the state roots",
}


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    """Without a job. To describe it takes half a second, once."""
    return make_api(Context(Service((StateRoot(str(tmp_path_factory.mktemp("api"))),)), Requests()))


@pytest.fixture
def http(server: Server) -> httpx.Client:
    return server.client()


def test_every_command_has_its_call_and_every_call_its_command(api):
    calls = commands_of(api)
    commands = {
        f"{name} {inner}" if inner else name
        for name, command in commands_in(main)
        for inner in (command.commands if isinstance(command, click.Group) else [""])
    }
    assert commands - set(LOCAL) == set(calls)


# Options of commands, and the fields of the call's body that do the same.
FIELDS = {
    "maps": "renames",
    "claim_mode": "claim",
    "timeout": "timeout_seconds",
    "app": "program",
    "app_a": "program_a",
    "app_b": "program_b",
    "args": "arguments",
    "new_name": "name",
    "every_ms": "savepoint_schedule",
    "keep_last": "savepoint_schedule",
    "keep_for_ms": "savepoint_schedule",
    "py_files": "conf",
    "files": "conf",
    "archives": "conf",
    "master": "conf",
}
# Those that are about the terminal or this machine, and the job, which the path has.
OF_THE_COMMAND_LINE = {
    "detached",
    "state_root",
    "output",
    "verbose",
    "log_format",
    "config",
    "keep",
    "help",
    "job",
    "exit_code",
}


@pytest.mark.parametrize("name", ["run", "fork", "upgrade", "check", "ab"])
def test_what_a_command_can_be_told_its_call_can_be_told(api, name):
    (call,) = (each for each in commands_of(api)[name] if each.startswith("POST"))
    method, _, path = call.partition(" ")
    sent = described(api)["paths"][path][method.lower()]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    fields = set(described(api)["components"]["schemas"][sent.rpartition("/")[2]]["properties"])
    shown = {option.name for option in dict(commands_in(main))[name].params if not getattr(option, "hidden", False)}
    options = shown - OF_THE_COMMAND_LINE
    assert {option for option in options if FIELDS.get(option, option) not in fields} == set()


def test_jobs_are_found_by_name_and_by_flinks_id(server, http):
    ((job,),) = (http.get("/v1/jobs").json()["jobs"],)
    assert job == {"id": job_id(str(server.root), "counting"), "status": "RUNNING"}
    by_id, by_name = (http.get(f"/v1/jobs/{ref}").json() for ref in (job["id"], "counting"))
    assert by_id["jid"] == by_name["jid"] == job["id"]
    assert len(job["id"]) == 32
    missing = http.get("/v1/jobs/nothing")
    assert missing.status_code == 404
    assert missing.json()["errors"] == ["there is no job 'nothing'; there are: 'counting'"]


def test_a_jobs_graph_counts_and_epochs_are_shown(http):
    details = http.get("/v1/jobs/counting").json()
    shown = {vertex["uid"]: vertex for vertex in details["vertices"]}
    assert list(shown) == ["numbers", "counts", "out"]
    assert shown["counts"]["stateful"]
    assert not shown["numbers"]["stateful"]
    edges = [(node["uid"], each["uid"], each["ship_strategy"]) for node in details["plan"]["nodes"] for each in node["inputs"]]
    assert edges == [("counts", "numbers", "HASH"), ("out", "counts", "FORWARD")]

    found = http.get("/v1/jobs/counting/checkpoints").json()
    newest = found["latest"]["completed"]
    assert found["counts"]["completed"] >= newest["id"] - 1 > 0
    assert newest["records"]["counts"] == 100
    assert set(newest["phases"]) == {"planned", "computed", "written", "committed", "published"}
    assert newest["end_to_end_duration"] == newest["phases"]["published"] - newest["phases"]["planned"]
    later, deadline = details["overview"], time.monotonic() + 10  # what a busy driver said is shared for some seconds
    while later["epoch"] == details["overview"]["epoch"] and time.monotonic() < deadline:
        time.sleep(0.2)
        later = http.get("/v1/jobs/counting").json()["overview"]
    assert later["records-read"] > details["overview"]["records-read"]
    assert later["epoch"] > details["overview"]["epoch"]
    config = http.get("/v1/jobs/counting/checkpoints/config").json()
    assert (config["mode"], config["interval"]) == ("exactly_once", 100)


def test_savepoints_are_taken_labelled_compared_queried_and_disposed(http):
    def take(**body):
        request = http.post("/v1/jobs/counting/savepoints", json=body).json()["request-id"]
        while (found := http.get(f"/v1/jobs/counting/savepoints/{request}").json())["status"]["id"] != "COMPLETED":
            time.sleep(0.05)
        return found["operation"]["location"]

    first, second = take(label="first"), take(note="second")
    listed = {each["path"]: each for each in http.get("/v1/jobs/counting/savepoints").json()["savepoints"]}
    assert [listed[first]["label"], listed[second]["note"]] == ["first", "second"]
    second_id = listed[second]["id"]
    assert http.patch(f"/v1/catalog/savepoints/{second_id}", json={"label": "second"}).json()["label"] == "second"

    diff = result(http, http.post("/v1/catalog/diffs", json={"before": "first", "after": "second"}))
    assert [(each["uid"], each["outcome"]) for each in diff["states"]] == [("counts", "changed")]
    (state,) = http.get("/v1/catalog/savepoints/first/states").json()["states"]
    assert (state["uid"], state["rows"]) == ("counts", 10)
    (row,) = http.get("/v1/catalog/savepoints/first/states/counts/state?key=3").json()["rows"]
    assert row["key"] == 3
    sql = {"sql": 'SELECT count(*) AS n, sum(value) AS total FROM counts."state"'}
    found = http.post("/v1/catalog/savepoints/first/query", json=sql).json()
    assert found["columns"] == ["n", "total"]
    assert found["rows"][0][0] == 10
    assert isinstance(found["rows"][0][1], int)
    assert not found["truncated"]
    many = http.post("/v1/catalog/savepoints/first/query", json={"sql": "SELECT range FROM range(20000)"}).json()
    assert (len(many["rows"]), many["truncated"]) == (10_000, True)
    edited = result(http, http.post("/v1/catalog/savepoints/first/edit", json={"remove_uids": ["counts"]}))
    assert http.get(f"/v1/catalog/savepoints/{edited['id']}/states").json()["states"] == []

    for path in (edited["savepoint"], second):
        request = http.post("/v1/savepoint-disposal", json={"savepoint-path": path}).json()["request-id"]
        while http.get(f"/v1/savepoint-disposal/{request}").json()["status"]["id"] != "COMPLETED":
            time.sleep(0.05)
    assert [each["label"] for each in http.get("/v1/jobs/counting/savepoints").json()["savepoints"]] == ["first"]
    assert {each["kind"] for each in http.get("/v1/catalog/tree").json()["nodes"]} == {"run", "savepoint"}


def test_programs_are_uploaded_checked_run_and_stopped(http):
    program = http.post("/v1/programs?name=other.py", content=JOB.replace('"counting"', '"other"')).json()["id"]
    assert http.post("/v1/programs?name=other.py", content=b"not python (").status_code == 400
    schedule = {"interval_ms": 500, "keep_last": 2}
    body = {"program": program, "name": "other", "parallelism": 1, "savepoint_schedule": schedule, "pass_env": ["TZ"]}
    started = result(http, http.post("/v1/jobs", json=body))
    assert started["job"] == "other"
    while not http.get("/v1/jobs/other/savepoints").json()["savepoints"]:
        time.sleep(0.1)
    assert http.get("/v1/jobs/other").json()["state"] == "RUNNING"
    assert "INFO" not in http.get("/v1/jobs/other/log").text
    stopped = result(http, http.post("/v1/jobs/other/stop", json={}))
    checked = result(http, http.post("/v1/check", json={"program": program, "savepoint": stopped["savepoint"]}))
    assert checked["fits"]
    changed = JOB.replace('"counting"', '"other"').replace('.uid("counts")', '.uid("renamed")')
    another = http.post("/v1/programs?name=other.py", content=changed).json()["id"]
    refused = result(http, http.post("/v1/check", json={"program": another, "savepoint": stopped["savepoint"]}))
    assert not refused["fits"]
    scheduled = min(http.get("/v1/jobs/other/savepoints").json()["savepoints"], key=lambda each: each["epoch"])
    versions = {"savepoint": scheduled["id"], "program_a": program, "program_b": program, "until": stopped["savepoint"]}
    compared = result(http, http.post("/v1/ab", json=versions | {"parallelism": 1, "engine": "local", "samples": 1}))
    assert compared["same"]
    assert http.get("/v1/jobs/other").json()["state"] == "FINISHED"
    ended = [
        http.post("/v1/jobs/other/savepoints", json={}),
        http.post("/v1/jobs/other/stop", json={}),
        http.patch("/v1/jobs/other"),
    ]
    assert [(each.status_code, each.json()["error"]["code"]) for each in ended] == [(409, "JobNotRunning")] * 3
    assert http.patch("/v1/jobs/unknown").status_code == 404


def test_what_cannot_be_is_refused_at_once(http):
    for label in ("a/b", "", "latest"):
        refused = http.post("/v1/jobs/counting/savepoints", json={"label": label})
        assert (refused.status_code, "cannot be a label" in refused.text) == (400, True), label
    missing = http.get("/v1/jobs/counting/checkpoints/details/987654321")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "CheckpointNotFound"
    assert "no checkpoint 987654321" in missing.text


def test_a_running_jobs_state_is_read(http):
    (state,) = http.get("/v1/jobs/counting/state").json()["states"]
    assert (state["uid"], state["state"]) == ("counts", "state")
    first = http.get("/v1/jobs/counting/state/counts/state?key=3").json()
    time.sleep(0.5)
    later = http.get("/v1/jobs/counting/state/counts/state?key=3").json()
    assert later["epoch"] > first["epoch"]
    assert later["rows"][0]["value"] > first["rows"][0]["value"] > 0
    found = http.post("/v1/jobs/counting/query", json={"sql": 'SELECT min(value) = max(value) FROM counts."state"'}).json()
    assert found["rows"] == [[True]]


def test_metrics_of_all_jobs_are_scraped(http):
    scraped = http.get("/metrics")
    assert scraped.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(scraped.text)
        for sample in family.samples
    }
    assert samples["forkpoint_job_state", "counting", "running"] == 1
    assert samples["forkpoint_operator_records_in_total", "counting", "counts"] > 0


def test_a_repeated_trigger_id_is_one_request(http):
    body = {"triggerId": "0" * 32, "label": "once"}
    assert [http.post("/v1/jobs/counting/savepoints", json=body).json() for _ in range(2)] == [{"request-id": "0" * 32}] * 2
    result(http, http.post("/v1/jobs/counting/savepoints", json=body))
    labels = [each["label"] for each in http.get("/v1/jobs/counting/savepoints").json()["savepoints"]]
    assert labels.count("once") == 1


def test_a_jobs_own_port_serves_the_same_api_for_that_job(server):
    (place,) = server.root.glob("jobs/counting/runs/*/endpoint.json")
    endpoint = httpx.Response(200, content=place.read_bytes()).json()
    url = f"http://127.0.0.1:{endpoint['port']}"
    headers = {"authorization": f"Bearer {endpoint['token']}"}
    with httpx.Client(base_url=url, headers=headers, trust_env=False) as own:
        assert own.get("/v1/config").json()["only"] == "counting"
        assert own.get("/v1/jobs/counting/checkpoints").json()["counts"]["completed"] > 0
        assert own.get("/v1/status").json()["job"] == "counting"
        assert own.post("/v1/programs?name=a.py", content=b"pass").status_code == 400


def test_the_documentation_has_each_call(api):
    page = (Path(__file__).parents[2] / "docs" / "rest.md").read_text()
    named = {
        path: [part for part in path.removeprefix("/v1/").split("/") if part and "{" not in part]
        for path in described(api)["paths"]
    }
    missing = {path for path, parts in named.items() if not all(f"/{part}" in page for part in parts)}
    assert not missing, f"docs/rest.md lacks {', '.join(sorted(missing))}"


def test_answers_are_as_the_description_says_they_are(api):
    found = described(api)
    assert found["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert "422" not in str([operation["responses"].keys() for path in found["paths"].values() for operation in path.values()])


@pytest.mark.parametrize(
    ("phases", "examples"),
    [
        ("examples,fuzzing", 1),
        pytest.param("coverage,fuzzing", 10, marks=pytest.mark.slow),
    ],  # boundaries of each parameter
)
def test_random_requests_get_no_5xx_and_no_undocumented_answer(server, phases, examples):
    configuration = Path(__file__).parent / "schemathesis.toml"
    command = [
        "schemathesis",
        "--config-file",
        str(configuration),
        "run",
        f"{server.url}/v1/openapi.json",
        "-H",
        f"Authorization: Bearer {OPERATE}",
        "--checks",
        "all",
        "--phases",
        phases,
        "--max-examples",
        str(examples),
        "--generation-deterministic",
        "--no-color",
        "--exclude-path",
        "/v1/doctor",  # each starts Spark
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=server.directory)
    assert done.returncode == 0, done.stdout
    with server.client() as http:  # a request may well have stopped the job
        assert http.get("/v1/jobs/counting").status_code == 200
