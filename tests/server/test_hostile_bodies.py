"""Whatever a caller sends as a body, the answer says what is wrong with it: never 5xx."""

import io
import json
import zipfile

import pytest
from starlette.testclient import TestClient

from forkpoint.operations.roots import StateRoot
from forkpoint.server.access import Tokens
from forkpoint.server.app import ServerOptions, application


def archive(*names: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for name in names:
            file.writestr(name, "pass")
    return made.getvalue()


BODIES = {
    "operators": b"-" * 300_000 + b"1",
    "attributes": b"a." * 100_000 + b"b",
    "brackets": b"[" * 9_000,
    "closed brackets": b"[" * 900 + b"]" * 900,
    "digits": b"1" * 300_000,
    "a number": b'{"watch_epochs": ' + b"1" * 5_000 + b"}",
    "exponent": b'{"timeout_seconds": 1e999, "samples": -0}',
    "surrogate": json.dumps({"name": "\ud800", "program": "\udfff"}).encode(),
    "not UTF-8": b"\xff\xfe{",
    "nul": b'{"name": "\\u0000", "program": "a"}\0',
    "an array": b"[1, null]",
    "null": b"null",
    "damaged archive": archive("app.py")[:60],
    "file and directory": archive("app.py", "app.py/inner.py"),
}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    root = tmp_path_factory.mktemp("hostile")
    tokens = Tokens("operate")
    served = application(ServerOptions((StateRoot(str(root / "state")),), tokens, root / "programs"))
    return TestClient(served, raise_server_exceptions=False, headers={"authorization": "Bearer operate"})


@pytest.fixture(scope="module")
def calls(client):
    paths = client.get("/v1/openapi.json").json()["paths"]
    found = [(method, path) for path, methods in paths.items() for method in methods if method in ("post", "patch", "put")]
    assert len(found) > 10
    return [(method, path.replace("{", "").replace("}", "")) for method, path in found]


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_no_body_is_answered_with_an_error_of_the_server(client, calls, body):
    for method, path in calls:
        full = path if path.startswith("/v1") else f"/v1{path}"
        query = "?name=app.py" if full == "/v1/programs" else ""
        answer = client.request(method, full + query, content=body, headers={"content-type": "application/json"})
        taken = full == "/v1/programs" and answer.status_code == 201  # some are Python, too
        assert taken or 400 <= answer.status_code < 500, (full, answer.status_code, answer.text[:300])
        assert taken or answer.json()["error"]["message"]
