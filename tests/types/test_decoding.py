"""msgspec may be used by several threads, although it isn't safe where two of them look at a class for the first time."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Each round has classes that msgspec has not seen. Four threads that call msgspec itself end the process in the first rounds.
THREADS = """
import sys, threading
from dataclasses import make_dataclass
import msgspec
from forkpoint import decoders

sys.setswitchinterval(1e-6)
CONTENT = {f"member{i}": {"a": i, "b": i} for i in range(10)}
ENCODED = msgspec.json.encode(CONTENT)
WAYS = {
    "convert": lambda kind: decoders.convert(CONTENT, kind),
    "decode": lambda kind: decoders.json_decoder(kind)(ENCODED),
}


def use(together, kind, way):
    together.wait()
    WAYS[way](kind)
    done.append(kind)


done = []
for _ in range(50):
    members = [(f"member{i}", make_dataclass(f"Member{i}", [("a", int), ("b", int)])) for i in range(10)]
    kind, together = make_dataclass("Record", members), threading.Barrier(4)
    threads = [threading.Thread(target=use, args=(together, kind, way)) for way in [*WAYS, *WAYS]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(len(done))
"""


def test_threads_that_look_at_a_class_for_the_first_time() -> None:
    ended = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout.strip()) == (0, "200"), ended.stderr


def builds(path: Path) -> list[str]:
    """Calls that make msgspec look at a class: a decoder, ``decode`` with a type, ``convert``."""
    found = []
    for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func)
        typed = name.endswith((".decode", "json.decode", "msgpack.decode")) and any(each.arg == "type" for each in call.keywords)
        if typed or name == "msgspec.convert" or name.endswith(("json.Decoder", "msgpack.Decoder")):
            found.append(f"{path.relative_to(ROOT)}:{call.lineno}: {name}")
    return found


@pytest.mark.parametrize("directory", ["src", "packages"])
def test_nobody_else_makes_msgspec_look_at_a_class(directory: str) -> None:
    sources = [each for each in (ROOT / directory).rglob("*.py") if "tests" not in each.parts and each.stem != "decoders"]
    found = [line for each in sources for line in builds(each)]
    # A key that somebody typed, under the lock.
    assert [line for line in found if not line.startswith("src/forkpoint/operations/saved_state/inspection.py")] == []
    assert len(sources) > 20
