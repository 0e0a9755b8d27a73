"""The program of docs/mqtt.md."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import forkpoint as fp
from examples.doc_blocks import ROOT, blocks
from forkpoint.api.execution import prepare
from forkpoint.api.launch import Launch
from servers.mqtt_server import Mosquitto

(PROGRAM,) = (block for block in blocks(ROOT / "docs" / "mqtt.md") if block.info == "python")


def test_the_program(mosquitto: Mosquitto, tmp_path: Path) -> None:
    names: dict[str, Any] = {"__name__": "app"}
    exec(compile(PROGRAM.text, PROGRAM.name, "exec", dont_inherit=True), names)
    for room, celsius in (("hall", "19.5"), ("attic", "31.0")):
        mosquitto.publish(f"rooms/{room}/temperature", [celsius], retain=True)
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(str(tmp_path / "root"))
    names["highest"](env, "127.0.0.1", mosquitto.port).sink_to(fp.FileSink.json(str(tmp_path / "out"))).uid("out")
    env.launch = Launch(options={"engine": "local"})
    job = prepare(env, "rooms")
    running = threading.Thread(target=job.begin(), daemon=True)
    running.start()
    try:
        wanted = {"hall": 21.0, "attic": 31.0}
        while len(found(tmp_path / "out")) < 2:
            assert running.is_alive()
            time.sleep(0.05)
        mosquitto.publish("rooms/hall/temperature", ["21.0", "18.0"])
        while found(tmp_path / "out") != wanted:
            assert running.is_alive()
            time.sleep(0.05)
    finally:
        job.driver.cancel()
        running.join(60)  # else a test that was ended for taking too long would hang here


def found(out: Path) -> dict[str, float]:
    files = [path for path in sorted(out.rglob("*")) if path.is_file() and not path.name.startswith((".", "_"))]
    lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    return {line["room"]: max(each["highest"] for each in lines if each["room"] == line["room"]) for line in lines}
