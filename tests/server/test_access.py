"""Attacks on a server, tried and refused."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import subprocess
import time
import zipfile

import pytest
from rest_server import OPERATE, READ, Server

from forkpoint.errors import ConfigError
from forkpoint.server.programs import MAX_BYTES, ProgramNotFound, Programs
from programs import ENVIRONMENT, run_python


@pytest.mark.parametrize("token", [None, "x", "wrong", OPERATE[:-1], OPERATE + "x", "é" * 20])
def test_without_the_token_nothing_but_the_pages_files_is_served(server, token):
    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    with server.client(None) as http:
        for path in ("/v1/jobs", "/v1/openapi.json", "/v1/nothing", "/jobs", "/v1/jobs/counting/log"):
            assert http.get(path, headers=headers).status_code == 401, path
        assert http.patch("/v1/jobs/counting", headers=headers).status_code == 401


def test_the_name_of_the_scheme_may_be_in_any_case(server):
    with server.client(None) as http:
        for scheme in ("bearer", "BEARER", "Bearer"):
            assert http.get("/v1/jobs", headers={"authorization": f"{scheme} {READ}"}).status_code == 200
            assert http.get("/v1/jobs", headers={"authorization": f"{scheme} {READ.upper()}"}).status_code == 401
        for wrong in (READ, f"Basic {READ}", f"Bearer  {READ}", f"Bearer{READ}", "Bearer"):
            assert http.get("/v1/jobs", headers={"authorization": wrong}).status_code == 401, wrong


def test_a_probe_needs_no_token_and_gets_no_details(tmp_path):
    server = Server(tmp_path)
    try:
        with server.client(None) as http:
            assert http.get("/ready").json() == {"status": "ok"}
            (tmp_path / "root").rename(tmp_path / "away")
            time.sleep(1.1)  # what was listed is shared for a second
            refused = http.get("/ready")
            assert (refused.status_code, str(tmp_path) in refused.text) == (503, False)
            assert http.post("/ready").status_code == 401
    finally:
        server.close()


def test_the_role_read_may_only_look(server):
    with server.client(READ) as http:
        assert http.get("/v1/jobs/counting").status_code == 200
        assert http.get("/v1/config").json()["role"] == "read"
        refused = {
            "PATCH": ["/v1/jobs/counting", "/v1/catalog/savepoints/x", "/v1/jobs/counting/rescaling?parallelism=2"],
            "POST": [
                "/v1/jobs/counting/savepoints",
                "/v1/jobs/counting/stop",
                "/v1/jobs",
                "/v1/programs?name=a.py",
                "/v1/gc",
            ],
            "DELETE": ["/v1/catalog/savepoints/x"],
        }
        for method, paths in refused.items():
            for path in paths:
                assert http.request(method, path, json={}).status_code == 403, path
        assert http.post("/v1/catalog/savepoints/x/query", json={"sql": "SELECT 1"}).status_code == 404
    with server.client() as http:
        assert http.get("/v1/jobs/counting").json()["state"] == "RUNNING"


def test_pages_of_other_origins_and_names_are_refused(server):
    with server.client(origin="https://evil.example") as http:
        assert http.get("/v1/jobs").status_code == 403
        assert http.options("/v1/jobs").status_code == 403
        assert "access-control-allow-origin" not in http.options("/v1/jobs").headers
    with server.client(host="evil.example") as http:  # DNS rebinding
        assert http.get("/v1/jobs").status_code == 403
    with server.client(origin=server.url) as http:
        assert http.get("/v1/jobs").status_code == 200
    with server.client() as http:
        assert http.get("/v1/jobs").headers["content-security-policy"].startswith("default-src 'none'")


def test_no_path_outside_the_state_roots_is_read_or_written(server, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("never to be seen")
    (server.root / "savepoints").mkdir(exist_ok=True)
    (server.root / "link").symlink_to(tmp_path)
    with server.client() as http:
        for path in (
            "/../../etc/passwd",
            "/%2e%2e/%2e%2e/etc/passwd",
            "/v1/../../etc/passwd",
            "//etc/passwd",
            "/page/../app.py",
        ):
            assert http.get(path).status_code == 404, path
        for ref in (str(secret), "..%2f..%2fsecret", "%2Fetc%2Fpasswd", "file:%2F%2F%2Fetc"):
            assert http.get(f"/v1/catalog/savepoints/{ref}").status_code in (400, 404), ref
        for directory in (
            str(tmp_path),
            "/etc",
            f"{server.root}/../elsewhere",
            f"{server.root}/link/x",
            "s3://bucket/x",
            f"{server.root}x",
        ):
            reply = http.post("/v1/jobs/counting/savepoints", json={"target-directory": directory})
            assert reply.status_code == 400, directory
        assert http.post("/v1/savepoint-disposal", json={"savepoint-path": str(tmp_path)}).status_code == 404
        assert http.get("/v1/catalog/savepoints", params={"root": str(tmp_path)}).status_code == 404
        sql = {"sql": f"SELECT * FROM read_text('{secret}')"}
        taken = http.post("/v1/jobs/counting/savepoints", json={"label": "sandbox"}).json()["request-id"]
        while http.get(f"/v1/requests/{taken}").json()["status"] == "IN_PROGRESS":
            time.sleep(0.05)
        reply = http.post("/v1/catalog/savepoints/sandbox/query", json=sql)
        assert reply.status_code == 400
        assert "never to be seen" not in reply.text
    assert secret.exists()


def test_huge_slow_and_broken_requests_are_refused(server):
    with server.client() as http:
        assert http.post("/v1/programs?name=a.py", content=b"#" * (MAX_BYTES + 1)).status_code == 413
        assert http.post("/v1/jobs/counting/savepoints", content=b"x" * (1 << 21)).status_code == 413
        for body in (
            b"{",
            b"[]",
            b'{"label": 5}',
            b'{"unknown": 1}',
            b"\xff\xfe",
            b'{"label": "' + b"x" * 3_000 + b'"}',
        ):
            assert http.post("/v1/jobs/counting/savepoints", content=body).status_code == 400, body[:20]
        deep = b'{"positions": {"a": ' + b"[" * 20_000 + b"]" * 20_000 + b"}}"
        assert http.post("/v1/catalog/savepoints/x/edit", content=deep).status_code in (400, 404)
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as long, contextlib.suppress(ConnectionError):
        long.sendall(b"GET /v1/jobs?" + b"x" * (1 << 20))
        assert b"400" in long.recv(65536)
    with socket.create_connection((host, int(port))) as slow:
        slow.sendall(b"POST /v1/programs?name=a.py HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n")
        slow.settimeout(60)
        while slow.recv(65536):
            pass
    with server.client() as http:
        assert http.get("/v1/jobs").status_code == 200


@pytest.mark.parametrize("name", ["query", "diffs", "catalog%2Fdiffs"])
def test_a_name_gives_no_rights(server, name):
    """Who may read may send queries, but a job's name may end a path, too."""
    with server.client(READ) as http:
        for method, path in (("PATCH", f"/v1/jobs/{name}?mode=cancel"), ("DELETE", f"/v1/catalog/savepoints/{name}")):
            assert http.request(method, path).status_code == 403, path
        assert http.post(f"/v1/jobs/{name}/query", json={"sql": "SELECT 1"}).status_code == 404


def test_who_did_what_is_noted(server):
    with server.client(READ) as http:
        http.patch("/v1/jobs/counting")
    notes = [json.loads(line) for line in (server.root / "audit.log").read_text().splitlines()]
    assert (notes[-1]["role"], notes[-1]["method"], notes[-1]["path"], notes[-1]["status"]) == (
        "read",
        "PATCH",
        "/v1/jobs/counting",
        403,
    )
    assert notes[-1]["asked"] is None
    with server.client() as http:
        http.patch("/v1/jobs/nothing?mode=cancel")
        http.post("/v1/jobs/nothing/fork", json={"program": "p", "name": "n", "conf": {"fs.s3a.secret.key": "hidden"}})
    cancelled, forked = map(json.loads, (server.root / "audit.log").read_text().splitlines()[-2:])
    assert (cancelled["query"], cancelled["asked"]) == ("mode=cancel", None)
    assert forked["asked"] == {"program": "p", "name": "n", "conf": "…"}
    assert (server.root / "audit.log").stat().st_mode & 0o077 == 0
    assert OPERATE not in (server.root / "audit.log").read_text()


def zipped(*names: str, size: int = 1) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, b"#" * size)
    return data.getvalue()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("../app.py", b"pass"),
        ("app.sh", b"pass"),
        (".app.py", b"pass"),
        ("a/b.py", b"pass"),
        ("app.py", b"\0"),
        ("app.py", b""),
        ("app.py", zipped("other.py")),
        ("app.py", zipped("app.py", "../evil.py")),
        ("app.py", zipped("app.py", "/evil.py")),
        ("app.py", zipped("app.py", "a/../../evil.py")),
        ("app.py", zipped("app.py", ".program")),
        ("app.py", b"PK\x03\x04junk"),
        ("app.py", zipped(*(f"m{i}.py" for i in range(1001)))),
        ("app.py", zipped("app.py", size=5 * MAX_BYTES)),
    ],
)
def test_uploads_that_are_no_programs_are_refused(tmp_path, name, data):
    with pytest.raises(ConfigError):
        Programs(tmp_path / "programs").add(name, data)
    assert not (tmp_path / "evil.py").exists()


def test_an_archive_has_the_programs_modules(tmp_path):
    programs = Programs(tmp_path)
    added = programs.add("app.py", zipped("app.py", "package/module.py"))
    assert programs.find(added.id) == added == programs.all()[0]
    assert (added.file.parent / "package" / "module.py").read_bytes() == b"#"
    for wrong in ("0" * 32, "..", added.id.upper() + "x"):
        with pytest.raises(ProgramNotFound):
            programs.find(wrong)


def test_other_hosts_are_served_with_tls_only_or_by_an_explicit_flag(tmp_path):
    command = ["-m", "forkpoint.cli", "--state-root", tmp_path, "server", "--host", "0.0.0.0", "--port", "0"]
    refused = run_python(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert refused.returncode == 2
    assert "--tls-cert" in refused.stderr
    short = ENVIRONMENT | {"FORKPOINT_SERVER_TOKEN": "short"}
    refused = run_python([*command, "--insecure"], capture_output=True, text=True, env=short, check=False)
    assert refused.returncode == 1
    assert "at least 16" in refused.stderr


def test_tls(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "1",
            "-subj",
            "/CN=localhost",
            "-keyout",
            str(key),
            "-out",
            str(certificate),
        ],
        check=True,
        capture_output=True,
    )
    server = Server(tmp_path, "--tls-cert", str(certificate), "--tls-key", str(key))
    try:
        assert server.url.startswith("https://")
        with server.client() as http:
            assert http.get("/v1/jobs").json() == {"jobs": []}
    finally:
        server.close()
