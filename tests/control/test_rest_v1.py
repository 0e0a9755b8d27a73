"""The REST API keeps its promise: `rest-v1.json` has the answers of the first release, which is never changed."""

import json
import time
from pathlib import Path

import httpx
import msgspec
import pytest

from forkpoint.protocol.endpoint import HOST
from forkpoint.protocol.messages import Accepted, ErrorMessage, SavepointAnswer, StatusMessage

ANSWERS = {
    "StatusMessage": StatusMessage,
    "Accepted": Accepted,
    "Answer": SavepointAnswer,
    "ErrorMessage": ErrorMessage,
}
RECORDED = json.loads((Path(__file__).parent / "rest-v1.json").read_bytes())


def read_answer(answer, message):
    return msgspec.json.decode(json.dumps(answer), type=ANSWERS[message])


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded["name"])
def test_a_later_client_reads_the_first_releases_answers(recorded):
    read = msgspec.to_builtins(read_answer(recorded["answer"], recorded["message"]))
    assert {field: read[field] for field in recorded["answer"]} == recorded["answer"]


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded["name"])
def test_an_earlier_client_reads_a_later_releases_answers(recorded):
    later = recorded["answer"] | {"added_later": [1]}
    assert read_answer(later, recorded["message"]) == read_answer(recorded["answer"], recorded["message"])


def test_answers_have_all_fields_of_the_first_release(start, tmp_path):
    control, _ = start()
    headers = {"authorization": f"Bearer {control.endpoint.token}"}
    answers = {}
    with httpx.Client(base_url=f"http://{HOST}:{control.endpoint.port}", trust_env=False, headers=headers) as http:

        def ask(name, method, path, **body):
            reply = http.request(method, path, json=body or None)
            answers[name] = {"status": reply.status_code, "answer": reply.json()}
            return reply.json()

        def savepoint(name, directory):
            request = ask(name, "POST", "/v1/savepoints", directory=str(directory), label="a", note="b")["request-id"]
            while http.get(f"/v1/savepoints/{request}").json()["status"] == "IN_PROGRESS":
                time.sleep(0.01)
            return request

        (tmp_path / "file").write_text("in the way")
        completed = savepoint("savepoint requested", tmp_path / "there")
        failed = savepoint("savepoint requested", tmp_path / "file")
        ask("savepoint completed", "GET", f"/v1/savepoints/{completed}")
        ask("savepoint failed", "GET", f"/v1/savepoints/{failed}")
        ask("status", "GET", "/v1/status")
        ask("error", "GET", "/v1/savepoints/none")
        ask("cancel", "POST", "/v1/cancel")
    for recorded in RECORDED:
        found = answers[recorded["name"]]
        assert found["status"] == recorded["status"]
        assert_has_shape(found["answer"], recorded["answer"], recorded["name"])


def assert_has_shape(found, recorded, where):
    """`found` has all fields of `recorded`, with the same types of JSON; what is null on one side may be anything."""
    if recorded is None or found is None:
        return
    assert type(found) is type(recorded), where
    if isinstance(recorded, dict) and not where.endswith(("records", "watermarks")):  # by uid
        for field, value in recorded.items():
            assert field in found, f"{where}: {field!r} is missing"
            assert_has_shape(found[field], value, f"{where}: {field}")
