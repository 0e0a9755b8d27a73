"""Objects of classes of ``__main__`` in untyped state: in the driver, in workers, and in the next run of the program."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from programs import run_python

PROGRAM = """
import collections, dataclasses, enum, sys, typing
import attrs, msgspec, pydantic
import forkpoint as fp

class Color(enum.Enum):
    RED = 1
    GREEN = "g"

@dataclasses.dataclass
class Basket:
    name: str
    items: list = dataclasses.field(default_factory=list)

class Named(typing.NamedTuple):
    a: int

class Built(msgspec.Struct, frozen=True):
    a: int

class Model(pydantic.BaseModel):
    a: int

@attrs.define
class Attrs:
    a: int

class Outer:
    @dataclasses.dataclass(frozen=True)
    class Inner:
        a: int

class Keep(fp.KeyedProcessFunction):  # names none of the classes
    seen = fp.ListStateDescriptor("seen", fp.Types.PICKLED_BYTE_ARRAY())

    def process_element(self, element, ctx):
        number, key, value = element
        if number == FAILS_AT:
            raise ValueError("the first run ends here")
        self.seen.add(value)
        yield key, list(self.seen.get())

KEYS = [Color.RED, Built(1), Outer.Inner(2)]
VALUES = [Basket("x", [Named(1)]), Built(2), Model(a=3), Attrs(4), Color.GREEN, collections.Counter("ab"), Named(5),
          collections.deque([Basket("y")], 2), Outer.Inner(6)]
FAILS_AT = int(sys.argv[1])
env = fp.StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.set_max_epoch_rows(6)
elements = [(number, KEYS[number % 3], VALUES[number % 9]) for number in range(18)]
stream = env.from_collection(elements).uid("elements")
stream.key_by(lambda e: e[1]).process(Keep()).uid("keep").print().uid("out")
env.execute("main-classes")
"""


def run(directory: Path, engine: str, fails_at: int) -> subprocess.CompletedProcess[str]:
    (directory / "app.py").write_text(PROGRAM)
    return run_python(
        [
            "-m",
            "forkpoint.cli",
            "run",
            "--state-root",
            str(directory / "root"),
            "--engine",
            engine,
            str(directory / "app.py"),
            "--",
            str(fails_at),
        ],
        capture_output=True,
        text=True,
        check=False,
    )


def check(directory: Path, second_engine: str) -> None:
    failed = run(directory, "local", 13)
    assert failed.returncode != 0
    assert "the first run ends here" in failed.stderr
    done = run(directory, second_engine, -1)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("(")]
    assert 0 < len(lines) < 18  # it went on with the state of the first
    assert max((line for line in lines if line.startswith("(Outer")), key=len) == (
        "(Outer.Inner(a=2), [Model(a=3), Counter({'a': 1, 'b': 1}), Outer.Inner(a=6), Model(a=3), Counter({'a': 1, 'b': 1}), "
        "Outer.Inner(a=6)])"
    )
    assert "(<Color.RED: 1>, [Basket(name='x', items=[Named(a=1)]), Attrs(a=4), Named(a=5), Basket(name='x'" in done.stdout


def test_the_next_run_of_a_program_reads_objects_of_its_main_module(tmp_path: Path) -> None:
    check(tmp_path, "local")


@pytest.mark.slow  # in test_cli_on_spark.py, too, classes of the main module reach Spark's workers
@pytest.mark.spark
def test_and_so_do_the_workers_of_spark(tmp_path: Path) -> None:
    check(tmp_path, "spark")
