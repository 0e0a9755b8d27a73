"""What travels to the executors of a real cluster: the virtual environment, and credentials."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from slim_environment import ROOT, make_environment
from standalone import Cluster
from test_standalone import KEYS, ROWS, A, B, Program, hiding, needs_mounts, problems

from forkpoint.storage.base import open_storage

pytestmark = pytest.mark.spark

SECRET = "never-to-be-seen-0f83"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path)
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture
def program(tmp_path: Path, cluster: Cluster) -> Program:
    return Program(tmp_path, cluster)


@pytest.mark.slow
@needs_mounts
def test_the_environment_of_the_driver_travels_to_hosts_that_have_no_python(
    cluster: Cluster, program: Program, tmp_path: Path
) -> None:
    environment = tmp_path / "environment"
    program.python = str(make_environment(environment))
    cache = tmp_path / "cache"
    program.environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "XDG_CACHE_HOME": str(cache),
    }
    hidden = [environment, ROOT / "src", *([] if sys.base_prefix == "/usr" else [Path(sys.base_prefix)])]
    for host in (A, B):
        cluster.start_worker(host, within=hiding(*hidden), environment={"PYTHONPATH": "", "PATH": "/usr/bin:/bin"})
    program.write(0, 2)
    process = program.start("--ship-env")
    program.wait_for(ROWS // 2, process)
    cluster.kill_executors(A)  # the next one gets the environment, too
    program.write(1, 2)
    program.wait_for(ROWS, process)
    program.command("cancel", "counting")
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert Counter(program.rows()) == Counter((n, n // KEYS + 1) for n in range(ROWS))

    archives = list((cache / "forkpoint" / "environments").iterdir())
    assert len(archives) == 1
    process = program.start("--ship-env")  # the second time, it is there already
    while "counting" not in program.command("list"):
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    program.command("cancel", "counting")
    process.communicate()
    assert [place.stat().st_mtime for place in archives] == [
        place.stat().st_mtime for place in (cache / "forkpoint" / "environments").iterdir()
    ]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The variables with which a client uses a bucket on a real HTTP server that speaks S3; this process has none of them."""
    server_module = pytest.importorskip("moto.server", reason="needs an S3 server: pip install 'moto[server]'")
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        with urlopen(Request(f"http://{host}:{port}/state", method="PUT")):
            pass
        yield {
            "AWS_ACCESS_KEY_ID": "an-id",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        }
    finally:
        server.stop()


@pytest.mark.slow
def test_credentials_reach_executors_where_allowed_and_are_not_recorded(
    s3: dict[str, str], cluster: Cluster, program: Program
) -> None:
    # Without credentials, S3's clients ask the machine's metadata service for some.
    cluster.start_worker(A, environment={"AWS_METADATA_ENDPOINT": "http://127.0.0.1:1"})
    program.environment = {**program.environment, **s3}
    program.state_root = "s3://state/root"
    program.write(0, 2)

    err = problems(program.start())
    assert "The host lacks AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, AWS_REGION, AWS_SECRET_ACCESS_KEY" in err
    assert "pass them with --pass-env 'AWS_*'" in err

    process = program.start("--pass-env", "AWS_*")
    program.wait_for(ROWS // 2, process)
    assert SECRET not in command_lines()
    (run,) = [each["run"] for each in json.loads(program.command("--output", "json", "list"))["jobs"]]
    program.command("cancel", "counting")
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert SECRET not in err

    program.write(1, 2)
    program.app = f"run:{run}"  # the names are recorded, the values are this command's
    process = program.start()
    program.wait_for(ROWS, process)
    program.command("cancel", "counting")
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert Counter(program.rows()) == Counter((n, n // KEYS + 1) for n in range(ROWS))
    stored = open_storage("s3://state/root", {name.removeprefix("AWS_").lower(): value for name, value in s3.items()})
    recorded = [stored.read(place) for place in stored.list() if place.endswith("program.json")]
    assert sum(b"AWS_*" in each for each in recorded) == 2  # the names; the first run passed none
    assert not any(SECRET.encode() in stored.read(place) for place in stored.list())
    for log in (*cluster.directory.glob("*.log"), *cluster.directory.glob(f"{A}/work/**/std*")):
        assert SECRET not in log.read_text(), log


def command_lines() -> str:
    """What every user of this machine can see."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            found.append((entry / "cmdline").read_bytes().decode(errors="replace"))
    return "\n".join(found)
