"""Random damage to every file of a savepoint with every kind of state: refused by name, or without effect; never a state
that is another one, never a file outside of the savepoint's directory."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import everything
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from forkpoint.checkpoint.format import checksum
from forkpoint.errors import RestoreRefused, SavepointCorrupt, SavepointNotFound
from forkpoint.savepoint.format import sorting
from forkpoint.savepoint.format.opened_savepoint import open_savepoint, verify_files

REFUSED = (SavepointCorrupt, SavepointNotFound, RestoreRefused)
TIMES = int(os.environ.get("FUZZ_TIMES", "1"))  # `make fuzz` looks at more
PHASES = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]  # explaining takes longer than all the rest
PARALLELISMS = ((3, everything.MAX_PARALLELISM), (2, 16))  # the second gives keys new key groups
CANARY = b"of somebody else"

# -- what was touched outside ------------------------------------------------------------------------------------------

_watched: list[str] = []
_touched: list[str] = []
_FILE_EVENTS = {
    "open",
    "os.scandir",
    "os.listdir",
    "os.remove",
    "os.rename",
    "os.link",
    "os.mkdir",
    "os.rmdir",
    "os.symlink",
}


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched and event in _FILE_EVENTS:
        places = [os.path.realpath(os.fsdecode(place)) for place in arguments[:2] if isinstance(place, str | bytes)]
        _touched.extend(f"{event} {place}" for place in places if place.startswith(_watched[0]))


sys.addaudithook(_listen)


@dataclass
class Copy:
    """A savepoint of one's own to damage, beside which lie files that are nobody's business."""

    root: Path
    content: dict[str, bytes]
    expected: dict[tuple[int, int], everything.Entries]
    later: dict[str, bytes] = field(default_factory=dict)

    @property
    def place(self) -> Path:
        return self.root / "s"

    @property
    def outside(self) -> Path:
        return self.root / "outside"

    def write(self, path: str, data: bytes) -> None:
        (self.place / path).parent.mkdir(parents=True, exist_ok=True)
        (self.place / path).write_bytes(data)

    def metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.content["savepoint.json"])
        return found

    def unread(self) -> set[str]:
        """Files that a restore need not read: those for people and tools, and those without rows."""
        states = [state for operator in self.metadata()["operators"] for state in operator["states"]]
        empty = {file["path"] for state in states for file in state["files"] if not file["entries"]}
        return empty | {path for path in self.content if path.startswith("sources/")}

    def reseal(self, metadata: Any) -> None:
        """As somebody writes it who knows about checksums."""
        data = json.dumps(metadata).encode("utf-8", "surrogatepass")
        self.write("savepoint.json", data)
        self.write("savepoint.json.sha256", f"{checksum(data)}  savepoint.json\n".encode())

    def verified(self) -> str | None:
        """Why it is refused when all is read and compared; None if it is not."""
        with self._watching():
            try:
                verify_files(open_savepoint(str(self.place)))
            except (SavepointCorrupt, SavepointNotFound) as error:
                return str(error)
        return None

    def restored(self) -> list[str | None]:
        """For each parallelism why a restore is refused; None if it brings what the undamaged savepoint does."""
        outcomes: list[str | None] = []
        for parallelism in PARALLELISMS:
            with self._watching():
                try:
                    found = everything.restored(open_savepoint(str(self.place)), *parallelism)
                except REFUSED as error:
                    outcomes.append(str(error))
                    continue
            if found != self.expected[parallelism]:
                pytest.fail(f"another state was restored for {parallelism}")  # a comparison would be shown at length
            outcomes.append(None)
        return outcomes

    def refused(self, *named: str, restored: bool = True) -> None:
        """It must not be accepted, and each message must have one of these names."""
        why = [self.verified(), *(self.restored() if restored else [])]
        for message in why:
            assert message is not None
            assert any(name in message for name in named), message

    def _watching(self) -> Any:
        return Watching(str(self.outside))


@dataclass
class Watching:
    directory: str

    def __enter__(self) -> None:
        _touched.clear()
        _watched[:] = [self.directory]

    def __exit__(self, *_: object) -> None:
        _watched.clear()
        assert _touched == []
        assert Path(self.directory, "canary").read_bytes() == CANARY


def read_all(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


class Original:  # no dataclass, all of which would be shown for each failure
    def __init__(
        self, content: dict[str, bytes], later: dict[str, bytes], expected: dict[tuple[int, int], everything.Entries]
    ) -> None:
        self.content, self.later, self.expected = content, later, expected

    def copy(self) -> Iterator[Copy]:
        root = Path(tempfile.mkdtemp())
        copy = Copy(root, self.content, self.expected, self.later)
        for path, data in self.content.items():
            copy.write(path, data)
        copy.outside.mkdir()
        (copy.outside / "canary").write_bytes(CANARY)
        yield copy
        shutil.rmtree(root)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Original]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "ENTRIES_PER_PART", 200)  # several parts, several slices
        patch.setattr(sorting, "ENTRIES_PER_SLICE", 100)
        first = everything.saved(tmp_path_factory.mktemp("first"))
        later = everything.saved(tmp_path_factory.mktemp("later"), events=44)
        opened = open_savepoint(str(first))
        assert len({state.info.kind for state in opened.states()}) == 10
        assert verify_files(opened).files > 25
        expected = {each: everything.restored(opened, *each) for each in PARALLELISMS}
        yield Original(read_all(first), read_all(later), expected)


@pytest.fixture
def copy(original: Original) -> Iterator[Copy]:
    yield from original.copy()


def fuzz(examples: int) -> Callable[[Any], Any]:
    """An example gets a copy of its own."""

    def wrap(test: Callable[[Copy, st.DataObject], None]) -> Any:
        @settings(max_examples=examples * TIMES, suppress_health_check=list(HealthCheck), phases=PHASES)
        @given(data=st.data())
        def run(original: Original, data: st.DataObject) -> None:
            for copy in original.copy():
                test(copy, data)

        run.__name__ = test.__name__
        return run

    return wrap


# -- damage that the checksums tell ------------------------------------------------------------------------------------


@fuzz(4)
def test_bytes_changed_anywhere(copy: Copy, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(copy.content)))
    before = copy.content[path]
    match data.draw(st.sampled_from(["flip", "cut", "longer", "other bytes"])):
        case "flip":
            at = data.draw(st.integers(0, len(before) * 8 - 1))
            after = before[: at // 8] + bytes([before[at // 8] ^ 1 << at % 8]) + before[at // 8 + 1 :]
        case "cut":
            after = before[: data.draw(st.integers(0, len(before) - 1))]
        case "longer":
            after = before + data.draw(st.binary(min_size=1, max_size=20))
        case _:
            after = data.draw(st.binary(max_size=200))
    copy.write(path, after)
    if path == "savepoint.json.sha256" and after == before[:-1]:  # the line is whole without its end
        assert [copy.verified(), *copy.restored()] == [None] * 3
    elif path in copy.unread():
        copy.refused(Path(path).name, restored=False)
        assert copy.restored() == [None, None]
    else:
        copy.refused(Path(path).name)


@fuzz(6)
def test_files_removed_swapped_added_and_of_another_savepoint(copy: Copy, data: st.DataObject) -> None:
    paths = sorted(copy.content.keys() - copy.unread())
    path = data.draw(st.sampled_from(paths))
    match data.draw(st.sampled_from(["removed", "swapped", "of a later one", "added", "a directory"])):
        case "removed":
            (copy.place / path).unlink()
            copy.refused(Path(path).name)
        case "swapped":
            other = data.draw(st.sampled_from(paths))
            if copy.content[path] != copy.content[other]:
                copy.write(path, copy.content[other])
                copy.write(other, copy.content[path])
                copy.refused(path, other)
        case "of a later one":
            if copy.later.get(path, copy.content[path]) != copy.content[path]:
                copy.write(path, copy.later[path])
                copy.refused(Path(path).name)
        case "added":
            name = data.draw(st.sampled_from(["part-99.parquet", "_SUCCESS", "notes.txt", "sub/part-0.parquet"]))
            added = str(Path(path).parent / name)
            copy.write(added, copy.content[path])
            assert copy.restored() == [None, None]
            strange = name == "part-99.parquet" and added.count("/") == 3
            assert (copy.verified() is not None) == strange
        case _:
            (copy.place / path).unlink()
            (copy.place / path).mkdir()
            copy.refused(Path(path).name)


@fuzz(8)
def test_links_lead_nowhere(copy: Copy, data: st.DataObject) -> None:
    """The same bytes, elsewhere: nobody says that what is there will stay, or is meant to be read."""
    path = data.draw(st.sampled_from(sorted(copy.content)))
    match data.draw(st.sampled_from(["a file", "a directory", "circles", "nowhere", "secret"])):
        case "a file":
            (copy.outside / "same").write_bytes(copy.content[path])
            (copy.place / path).unlink()
            (copy.place / path).symlink_to(copy.outside / "same")
        case "a directory" if "/" in path:
            directory = (copy.place / path).parent
            shutil.move(directory, copy.outside / "moved")
            directory.symlink_to(copy.outside / "moved", target_is_directory=True)
        case "circles":
            for name in "abc":
                ((copy.place / path).parent / name).symlink_to(copy.place, target_is_directory=True)
        case "nowhere":
            (copy.place / path).unlink()
            (copy.place / path).symlink_to(copy.outside / "gone")
        case _:
            (copy.place / path).unlink()
            (copy.place / path).symlink_to("../" * (path.count("/") + 1) + "outside/canary")
    dangling = not (copy.place / "savepoint.json").exists()  # then it is taken for any other directory
    copy.refused("it has no savepoint.json" if dangling else "is a symbolic link")


# -- damage by somebody who writes the seal anew -----------------------------------------------------------------------

PATHS = [
    "../x",
    "../../outside/canary",
    "/etc/passwd",
    "a/../../outside/canary",
    "a\x00b",
    "x" * 5000,
    "\u202eb",
    "",
    ".",
    "~",
    "operators",
    "savepoint.json",
    "file:///etc/passwd",
    "\\\\host\\x",
    "%2e%2e/x",
]
NUMBERS = [0, 1, -1, 2, 7, 8, 16, 255, 2**31, 2**63, 2**64, 10**12, 10**400, -(2**63)]
ANYTHING = [None, True, 0, -1, 1.5, float("nan"), "", "x", [], {}, [[]], {"kind": "no such"}, "\ud800", 10**30]
KINDS = [
    "value",
    "list",
    "map",
    "reducing",
    "timers-event",
    "timers-processing",
    "operator-list",
    "broadcast",
    "quaternion",
]
NAMED = ["savepoint.json", "part-", "position.json", "state '", "the program and the saved state do not fit together"]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something is in a JSON value."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, key))


def mutated(data: st.DataObject, key: Any, value: Any) -> Any:
    """Something else of the same sort, as a rule."""
    if data.draw(st.integers(0, 5)) == 0:
        return data.draw(st.sampled_from(ANYTHING))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        near = st.integers(value - 2, value + 2)
        return data.draw(st.one_of(near, st.sampled_from(NUMBERS)))
    if key == "path":
        return data.draw(st.sampled_from(PATHS))
    if key == "kind":
        return data.draw(st.sampled_from(KINDS))
    if isinstance(value, str):
        return data.draw(st.sampled_from([value + "x", value.upper(), "", *PATHS]))
    if isinstance(value, list) and value:
        return data.draw(st.sampled_from([value[::-1], value + value[:1], [], value[1:]]))
    if isinstance(value, dict) and value:
        return data.draw(st.sampled_from([{**value, "novelty": 1}, dict(list(value.items())[1:])]))
    return data.draw(st.sampled_from(ANYTHING))


@fuzz(12)
def test_metadata_that_is_sealed_anew(copy: Copy, data: st.DataObject) -> None:
    metadata = copy.metadata()
    paths = sorted(places(metadata), key=str)
    deep = [path for path in paths if path[0] == "operators"]
    path = data.draw(st.one_of(st.sampled_from(paths), st.sampled_from(deep)))
    holder = metadata
    for key in path[:-1]:
        holder = holder[key]
    if data.draw(st.integers(0, 7)) == 0:
        del holder[path[-1]]
    else:
        holder[path[-1]] = mutated(data, path[-1], holder[path[-1]])
    copy.reseal(metadata)
    if len(said(metadata)) < len(said(copy.metadata())):  # an operator or state less: another savepoint, and no damage
        why = copy.verified()
        assert why is not None
        assert "part-" in why or "savepoint.json" in why
        return
    for message in [copy.verified(), *copy.restored()]:
        assert message is None or any(name in message for name in NAMED), message


def said(metadata: Any) -> list[tuple[str, str]]:
    """The states that savepoint.json lists, where it is readable."""
    try:
        operators = metadata.get("operators", [])
        return [(operator["uid"], state["name"]) for operator in operators for state in operator.get("states", [])]
    except (KeyError, TypeError, AttributeError):
        return [("", "")] * 1000


@pytest.mark.parametrize("version", [2, 10**9, 0, -1, "1", None])
def test_other_formats_are_refused(copy: Copy, version: Any) -> None:
    copy.reseal(copy.metadata() | {"format_version": version})
    copy.refused("savepoint.json")


def change_part(copy: Copy, state: Any, part: Any, table: pa.Table, described: bytes | None = b"") -> None:
    """Put other rows into a part, with a checksum that is right. ``described``: what it says of itself, if not the same."""
    if described is None:
        table = table.replace_schema_metadata(None)
    elif described:
        table = table.replace_schema_metadata({b"forkpoint": described})
    metadata = copy.metadata()
    pq.write_table(table, copy.place / part["path"], row_group_size=max(1, table.num_rows // 2))
    data = (copy.place / part["path"]).read_bytes()
    for operator in metadata["operators"]:
        for each in operator["states"]:
            for file in each["files"]:
                if file["path"] == part["path"]:
                    each["bytes"] += len(data) - file["bytes"]
                    each["entries"] += table.num_rows - file["entries"]
                    file.update(bytes=len(data), checksum=checksum(data), entries=table.num_rows)
    copy.reseal(metadata)


def with_value(table: pa.Table, column: str, at: int, value: Any) -> pa.Table:
    values = table[column].to_pylist()
    values[at] = value
    index = table.schema.get_field_index(column)
    field = table.schema.field(index).with_nullable(True)
    return table.set_column(index, field, pa.array(values, field.type))


DAMAGES = [
    "twice",
    "null",
    "shuffled",
    "group",
    "column",
    "renamed",
    "cast",
    "less",
    "named",
    "no JSON",
    "place",
    "a list's key",
]


@fuzz(8)
def test_parts_with_other_rows_that_are_sealed_anew(copy: Copy, data: st.DataObject) -> None:
    states = [state for operator in copy.metadata()["operators"] for state in operator["states"]]
    state = data.draw(st.sampled_from([state for state in states if state["entries"]]))
    part = data.draw(st.sampled_from([part for part in state["files"] if part["entries"]]))
    table = pq.read_table(copy.place / part["path"], partitioning=None)
    at = data.draw(st.integers(0, table.num_rows - 1))
    damage, named = data.draw(st.sampled_from(DAMAGES)), data.draw(st.sampled_from([b"", None]))
    keyed = "key_group" in table.column_names
    match damage:
        case "twice":
            change_part(copy, state, part, pa.concat_tables([table, table.slice(at, 1)]), named)
        case "null":
            columns = [name for name in table.column_names if name != "value" and not name.startswith("namespace")]
            change_part(copy, state, part, with_value(table, data.draw(st.sampled_from(columns)), at, None), named)
        case "shuffled":
            order = data.draw(st.permutations(range(table.num_rows)))
            change_part(copy, state, part, table.take(order), named)
            assert all(each is None or part["path"] in each for each in [copy.verified(), *copy.restored()])
            return
        case "group" if keyed:
            wrong = data.draw(st.integers(-2, 20).filter(lambda group: group != table["key_group"][at].as_py()))
            change_part(copy, state, part, with_value(table, "key_group", at, wrong), named)
        case "column":
            change_part(copy, state, part, table.append_column("more", pa.nulls(table.num_rows, pa.int8())), named)
        case "renamed":
            change_part(copy, state, part, table.rename_columns(["renamed", *table.column_names[1:]]), named)
        case "cast":
            first = table.schema.field(0).with_type(pa.int16() if keyed else pa.float32())
            change_part(copy, state, part, table.set_column(0, first, table[0].cast(first.type)), named)
        case "less":
            change_part(copy, state, part, table.slice(0, 0), named)
            metadata = json.loads((copy.place / "savepoint.json").read_bytes())
            for operator in metadata["operators"]:
                for each in operator["states"]:
                    for file in each["files"]:
                        if file["path"] == part["path"]:
                            file["entries"], each["entries"] = part["entries"], each["entries"] + part["entries"]
            copy.reseal(metadata)
        case "named":
            described = json.loads(table.schema.metadata[b"forkpoint"])
            what = data.draw(st.sampled_from(["uid", "name", "kind", "value_type", "key_type", "namespace_type"]))
            change_part(copy, state, part, table, json.dumps(described | {what: "another"}).encode())
        case "no JSON":
            said = data.draw(st.sampled_from([b"{", b"[]", b"1", b"\xff", b"null", b'{"uid": {}}', b"[" * 10_000]))
            change_part(copy, state, part, table, said)
        case "place" if "subtask" in table.column_names:
            value = data.draw(st.sampled_from([-1, 2, 7, 2**31 - 1]))
            change_part(copy, state, part, with_value(table, "subtask", at, value), named)
        case "place" if "domain" in table.column_names:
            other = "event" if table["domain"][0].as_py() == "processing" else "processing"
            change_part(copy, state, part, with_value(table, "domain", at, other), named)
        case "place" if state["kind"] == "list":
            change_part(copy, state, part, with_value(table, "index", at, data.draw(st.sampled_from([-1, 99, 2**62]))), named)
        case "a list's key" if state["kind"] == "list":
            inside = pc.indices_nonzero(pc.not_equal(table["index"], 0)).to_pylist()
            others = [row for row in inside if table["key"][row] != table["key"][at]]
            if not others:
                return
            row = data.draw(st.sampled_from(others))
            other_key = with_value(table, "key", row, table["key"][at].as_py())
            change_part(copy, state, part, with_value(other_key, "key_group", row, table["key_group"][at].as_py()), named)
        case _:
            return
    if damage == "twice":  # seen where all entries come together
        assert all(why is not None and (part["path"] in why or "two entries for one key" in why) for why in copy.restored())
    else:
        copy.refused(part["path"])


def test_rows_that_the_recorded_key_groups_leave_out_are_missed(copy: Copy) -> None:
    """With right checksums, and counts that add up: still each row of a file has to go somewhere."""
    metadata = copy.metadata()
    states = [state for operator in metadata["operators"] for state in operator["states"]]
    state = next(state for state in states if sum(file["entries"] > 0 for file in state["files"]) > 1)
    state["files"][0].update(kg_start=0, kg_stop=0)
    copy.reseal(metadata)
    assert "part-" in (copy.verified() or "")
    with pytest.raises(SavepointCorrupt, match="rows are in the key groups 0 to 0"):
        everything.restored(open_savepoint(str(copy.place)))


def test_a_savepoint_says_how_many_key_groups_its_keys_have(copy: Copy) -> None:
    """Restored for as many key groups as it says, keys would lie where nobody looks for them."""
    copy.reseal(copy.metadata() | {"max_parallelism": 16})
    copy.refused("a key has the key group")
