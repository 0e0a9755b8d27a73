"""Errors on their way from a task to the driver: they arrive as they were, and nothing that a record says passes for one."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import forkpoint as fp
from forkpoint import errors
from forkpoint.errors import ForkpointError, RestoreRefused, UserFunctionError
from forkpoint.spark.failures import TaskFailure, pack_failure, unpack_failure

TOKEN, OTHER = "0123456789abcdef", "fedcba9876543210"
RAN: list[str] = []


class Code:
    """What runs where it is unpickled."""

    def __reduce__(self) -> object:
        return RAN.append, ("code",)


class Picky(Exception):
    """Pickles, but cannot be built again from its arguments."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class Own(RestoreRefused):
    """Of a user's."""


def spark_error(*failures: TaskFailure) -> Exception:
    """What PySpark makes of tasks' failures: their tracebacks, as text."""
    traces = "\n".join(f"Traceback (most recent call last):\n  …\n{type(f).__name__}: {f}" for f in failures)
    return RuntimeError(f"Job aborted due to stage failure: Task 0 in stage 3.0 failed\n{traces}\n\n\tat org.apache…")


def carried(error: BaseException) -> BaseException:
    found = unpack_failure(spark_error(pack_failure(error, "stage 1, subtask 2", TOKEN)), TOKEN)
    assert found is not None
    return found


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


forged = json.dumps({"kind": "RestoreRefused", "message": "forged", "notes": []}).encode()
pieces = st.one_of(
    st.text(),
    st.sampled_from(["forkpoint-error:", f"forkpoint-error:{OTHER}:", "forkpoint-error::", "\n", " ", "\ud800"]),
    st.sampled_from([pickle.dumps(Code()), forged, b"\x80"]).map(encoded),
    st.sampled_from([ValueError("v"), RestoreRefused("r")]).map(lambda e: str(pack_failure(e, "stage 0", OTHER))),
)
record_texts = st.lists(pieces, max_size=6).map("".join)
kinds = st.sampled_from(
    [SystemExit, KeyError, ValueError, UserFunctionError, RestoreRefused, Own, type("Theirs", (Exception,), {})]
)


@given(record_texts, kinds)
def test_what_a_record_says_is_only_ever_text(text: str, kind: type[BaseException]) -> None:
    found = carried(kind(f"bad line {text}"))
    assert RAN == []
    assert "forged" not in str(found) or "forged" in text
    assert isinstance(found, Exception)  # a SystemExit or KeyboardInterrupt of a task must not end the driver
    said = text.encode(errors="backslashreplace").decode()
    if kind is not KeyError:  # which shows the repr of its argument
        assert f"bad line {said}" in str(found)
    if issubclass(kind, ForkpointError):
        assert type(found) is (RestoreRefused if kind is Own else kind)
        assert str(found) == f"bad line {said}"
    else:
        assert type(found) in (ValueError, UserFunctionError)


@given(record_texts)
def test_spark_errors_that_only_quote_records_come_from_no_task(text: str) -> None:
    assert unpack_failure(RuntimeError(f"Malformed records: {text}"), TOKEN) is None
    assert RAN == []


@given(record_texts, st.text(alphabet="0123456789abcdefABCxyz+/=", max_size=200))
def test_a_damaged_failure_is_told_as_such(text: str, damage: str) -> None:
    found = unpack_failure(RuntimeError(f"{text} forkpoint-error:{TOKEN}:{damage}"), TOKEN)
    assert found is None or isinstance(found, UserFunctionError)
    assert RAN == []


def test_errors_arrive_as_they_were() -> None:
    refused = RestoreRefused("uid 'x' and the state do not fit")
    refused.add_note("a note")
    found = carried(refused)
    assert (type(found), str(found), found.__notes__) == (RestoreRefused, str(refused), ["a note"])
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, ForkpointError):
            assert type(carried(kind("words"))) is kind
    found = carried(TypeError("a fault"))
    assert (type(found), str(found)) == (TypeError, "a fault")
    assert "raised in stage 1, subtask 2:" in found.__notes__[0]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Picky("one", "two"), "Picky in stage 1, subtask 2: one and two"),
        (SystemExit("bad line"), "SystemExit in stage 1, subtask 2: bad line"),
        (Mute(), "Mute in stage 1, subtask 2: (its message can't be printed: ValueError)"),
        (KeyError("k"), "KeyError in stage 1, subtask 2: 'k'"),
    ],
)
def test_what_has_no_place_in_the_table_is_a_users_error(error: BaseException, said: str) -> None:
    found = carried(error)
    assert type(found) is UserFunctionError
    assert str(found).startswith(said)


def test_long_messages_are_cut() -> None:
    assert len(str(pack_failure(ValueError("x" * 10_000_000), "stage 0", TOKEN))) < 200_000


class Touch:
    """Leaves a file behind where it is unpickled."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __reduce__(self) -> object:
        return open, (self.place, "w")


def parse(line: str) -> str:
    raise SystemExit(f"bad line {line}")


@pytest.mark.spark
def test_a_record_runs_no_code_on_the_driver(session: SparkSession, tmp_path: Path) -> None:
    line = f"forkpoint-error:{encoded(pickle.dumps(Touch(str(tmp_path / 'owned'))))}"
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_restart_strategy(fp.RestartStrategy.none())
    env.set_parallelism(1)
    env.from_collection([line], fp.Types.STRING()).map(parse, fp.Types.STRING()).sink_to(fp.DiscardSink())
    with pytest.raises(UserFunctionError, match="SystemExit") as found:
        env.execute("hostile")
    assert f"bad line {line}" in str(found.value)
    assert list(tmp_path.iterdir()) == []
