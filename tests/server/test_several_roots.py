"""A server over two state roots that both have a job of the same name."""

from __future__ import annotations

import os
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from rest_server import JOB, Server

ROOTS = ("root", "other")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("roots")
    (directory / "counting.py").write_text(JOB)
    made = Server(directory, "--root", str(directory / "other"))
    try:
        for root in ROOTS:
            made.forkpoint("--state-root", str(directory / root), "run", "-d", "counting.py")
        yield made
    finally:
        for root in ROOTS:
            for view in made.forkpoint("--state-root", str(directory / root), "list")["jobs"]:
                os.kill(view["pid"], 9)
        made.close()


@pytest.fixture
def http(server: Server) -> httpx.Client:
    return server.client()


@pytest.mark.slow
def test_metrics_of_jobs_with_the_same_name_have_their_state_root(server, http):
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(http.get("/metrics").text):
        for sample in family.samples:
            place = sample.name, frozenset(sample.labels.items())
            assert place not in found, place
            found[place] = sample.value
    for root in ROOTS:
        labels = frozenset({("job", "counting"), ("uid", "counts"), ("root", str(server.directory / root))})
        assert found["forkpoint_operator_records_in_total", labels] > 0


def test_a_state_root_says_which_job_of_a_name_is_meant(server, http):
    for root in ROOTS:
        place = str(server.directory / root)
        assert http.get("/v1/jobs/counting", params={"root": place}).json()["overview"]["root"] == place
        assert http.get("/v1/jobs/counting/runs", params={"root": place}).status_code == 200
    refused = http.get("/v1/jobs/counting")
    assert refused.status_code == 400
    for each in http.get("/v1/jobs").json()["jobs"]:
        assert each["id"] in refused.text
        assert http.get(f"/v1/jobs/{each['id']}").json()["jid"] == each["id"]
    own = http.get("/v1/jobs/counting", params={"root": str(server.root)}).json()["jid"]
    elsewhere = http.get(f"/v1/jobs/{own}", params={"root": str(server.directory / "other")})
    assert elsewhere.status_code == 404
    assert http.get("/v1/jobs/counting", params={"root": "/nowhere"}).status_code == 404
