"""Types, and the classes behind them, in a process that cannot import where they were defined."""

from __future__ import annotations

import pickle
import textwrap
from pathlib import Path

import cloudpickle
import pytest

from forkpoint.types import dumps, type_of
from programs import run_python

MAIN = """
from __future__ import annotations
import sys
from dataclasses import dataclass, field
from datetime import datetime as moment
from decimal import Decimal as Money
from enum import Enum
from typing import Annotated, NamedTuple
import cloudpickle, msgspec
from forkpoint.types import Instant, dumps, type_of

class Kind(Enum):
    OPEN = "o"
    SHUT = "s"

class Event(NamedTuple):
    kind: Kind
    at: moment
    seen: Instant | None
    price: Money

@dataclass
class Account:
    events: list[Event]
    note: str = "none"
    extra: dict[str, int] = field(default_factory=dict)

class Base(msgspec.Struct):
    id: Annotated[int, msgspec.Meta(lt=100)]

class Sensor(Base, tag=True, frozen=True):
    kind: Kind
    when: moment | None = None
    tags: list[str] = msgspec.field(default_factory=list, name="t")

    def __post_init__(self):
        if self.id < 0:
            raise ValueError("negative")

    @classmethod
    def make(cls, id):
        return Sensor(id, Kind.OPEN)

    @property
    def double(self):
        return self.id * 2

values = [
    Account([Event(Kind.SHUT, moment(2020, 1, 1), None, Money("1.50"))], extra={"a": 1}),
    Sensor.make(5),
    (Kind.OPEN, Sensor(1, Kind.SHUT, tags=["x"])),
]
types = [type_of(Account), type_of(Sensor), type_of(tuple[Kind, Sensor])]
encoded = [of.encode(value) for of, value in zip(types, values)]
for of, data, value in zip(types, encoded, values):
    assert of.decode(data) == value

def check(types=types, encoded=encoded):
    account, sensor, pair = (of.decode(data) for of, data in zip(types, encoded))
    assert account == Account([Event(Kind.SHUT, moment(2020, 1, 1), None, Money("1.50"))], extra={"a": 1}), account
    assert type(account) is Account and Account([]).note == "none"
    assert sensor == Sensor.make(5) and type(sensor) is Sensor and sensor.double == 10 and isinstance(sensor, Base)
    assert pair[0] is Kind.OPEN and pair[1].tags == ["x"]
    try:
        Sensor.make(-1)
    except ValueError as error:
        assert str(error) == "negative"
    else:
        raise AssertionError("__post_init__ was lost")
    for of, data, value in zip(types, encoded, (account, sensor, pair)):
        assert of.encode(value) == data
        assert of.from_columns(of.to_columns([value])) == [value]
        assert of == type_of(type(value)) or type(value) is tuple
    assert "__main__" not in str(sys.modules["__main__"].__dict__.get("Account"))
    return "checked"

with open(sys.argv[1], "wb") as file:
    file.write(dumps(check))
with open(sys.argv[2], "wb") as file:
    file.write(cloudpickle.dumps((types, encoded)))
"""

WORKER = """
import pickle, sys
check = pickle.load(open(sys.argv[1], "rb"))
assert "Account" not in globals()
print(check())
types, encoded = pickle.load(open(sys.argv[2], "rb"))
for of, data in zip(types, encoded):
    value = of.decode(data)
    assert of.encode(value) == data
    assert of.from_columns(of.to_columns([value])) == [value]
print("plain")
"""


def run(script: Path, *arguments: Path) -> str:
    done = run_python([script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_classes_of_main_reach_another_process(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(textwrap.dedent(MAIN))
    (tmp_path / "worker.py").write_text(textwrap.dedent(WORKER))
    check, plain = tmp_path / "check.pkl", tmp_path / "plain.pkl"
    run(tmp_path / "main.py", check, plain)
    assert run(tmp_path / "worker.py", check, plain).split() == ["checked", "plain"]


@pytest.mark.parametrize("pickler", [dumps, cloudpickle.dumps])
def test_a_class_comes_back_as_itself_in_its_own_process(pickler: object) -> None:
    import msgspec

    class Local(msgspec.Struct):
        a: int

        def twice(self) -> int:
            return self.a * 2

    of = type_of(Local)
    copy = cloudpickle.loads(pickler(of))  # type: ignore[operator]
    assert type(copy.decode(of.encode(Local(2)))) is Local
    assert copy.decode(of.encode(Local(2))).twice() == 4


def test_code_tells_where_it_is_from_with_each_cloudpickle():
    """A release of cloudpickle replaces the file by a placeholder; tracebacks of workers need it, of inner functions, too."""

    def outer():
        return lambda: [each for each in (1, 2)]  # noqa: C416

    sent = pickle.loads(dumps(outer))
    assert sent is not outer
    for function in (sent, sent()):
        assert function.__code__.co_filename == __file__
    assert sent().__code__.co_firstlineno == outer().__code__.co_firstlineno
