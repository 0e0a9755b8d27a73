"""The OpenSearch sink against a real node: the newest document of each id, whoever dies, sleeps or comes late."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pytest

import forkpoint as fp
from background import InBackground
from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.connectors.rows import pack
from forkpoint.contract.sink import CommitterContext, stage
from forkpoint.driver.commit import publisher
from forkpoint.errors import ConfigError, ForkpointError, JobFailed, OutputRefused, SystemUnavailable
from forkpoint.types import RowKind
from forkpoint_opensearch import committer
from forkpoint_opensearch.client import SearchClient
from forkpoint_opensearch.committer import SearchCommitter, create_ledger
from gate import gate
from key_counts import counts_of, job, program, run, run_elements
from servers.opensearch_server import OpenSearch

PROGRAM = Path(__file__).with_name("opensearch_writing.py")
ELEMENTS = 200


def name() -> str:
    return f"i{uuid.uuid4().hex[:12]}"


def every(elements: int) -> list[tuple[int, int]]:
    return [(key, count) for key, counts in counts_of(elements).items() for count in counts]


def counts(search: OpenSearch, index: str) -> list[tuple[int, int]]:
    return sorted((each["key"], each["seen"]) for each in search.documents(index).values())


def test_the_newest_document_of_each_id_is_there(search: OpenSearch, tmp_path: Path) -> None:
    index = name()
    run(tmp_path, fp.OpenSearchSink(search.url, index, id="key"), ELEMENTS)
    assert search.documents(index) == {str(key): {"key": key, "seen": seen[-1]} for key, seen in counts_of(ELEMENTS).items()}


@pytest.mark.slow
@pytest.mark.parametrize(("step", "id"), [("note", "none"), ("note+", "each"), ("bulk", "each"), ("bulk+", "none")])
def test_a_driver_that_is_killed_at_a_step_of_writing(search: OpenSearch, tmp_path: Path, step: str, id: str) -> None:
    index = name()
    died = program(PROGRAM, search.url, index, id, tmp_path, ELEMENTS, step, 3)
    assert died.returncode == -9, died.stderr
    ended = program(PROGRAM, search.url, index, id, tmp_path, ELEMENTS)
    assert ended.returncode == 0, ended.stderr
    assert counts(search, index) == every(ELEMENTS)


# -- another one at the same commit


def new_committer(search: OpenSearch, root: Path, index: str, group: str = "0") -> SearchCommitter:
    client = SearchClient((search.url,))
    create_ledger(client.connect())
    return SearchCommitter(CommitterContext("sink", root.name, group, "0123", str(root)), client, index)


def output(root: Path, epoch: int, documents: Sequence[tuple[str | None, Any]]) -> EpochOutput:
    """Documents to be written; those that are None are deleted."""
    staged = [
        [b"-" if body is None else b"+", id and id.encode(), *([] if body is None else [msgspec.json.encode(body)])]
        for id, body in documents
    ]
    stored = stage(str(root), f"staged/{epoch}-{uuid.uuid4()}", pack(staged))
    return EpochOutput(epoch=epoch, committables=[{"group": "0", "rows": stored}])


@pytest.mark.parametrize("place", ["_span", "_bulk"])
def test_an_older_driver_that_wakes_up_changes_nothing(
    search: OpenSearch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """It sleeps before it looks at the ledger, or after, while others go on for an epoch, which deletes a document, too."""
    index = name()
    first = output(tmp_path, 1, [("1", {"seen": 1}), ("2", {"seen": 1})])
    second = output(tmp_path, 2, [("1", {"seen": 2}), ("2", None)])
    usual = getattr(SearchCommitter, place)

    def sleeps(self: SearchCommitter, *arguments: Any) -> Any:
        monkeypatch.setattr(SearchCommitter, place, usual)
        for one in (first, second):
            new_committer(search, tmp_path, index).commit(one, 2)
        return usual(self, *arguments)

    monkeypatch.setattr(SearchCommitter, place, sleeps)
    slow = new_committer(search, tmp_path, index)
    slow.commit(first, 2)
    assert search.documents(index) == {"1": {"seen": 2}}
    slow.commit(second, 2)
    assert search.documents(index) == {"1": {"seen": 2}}


def test_an_older_driver_looks_at_the_ledger_before_each_request(
    search: OpenSearch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For documents whose deletion OpenSearch has forgotten."""
    monkeypatch.setattr(committer, "CHUNK_DOCUMENTS", 1)
    index = name()
    search.request("PUT", index, {"settings": {"index.gc_deletes": "0s"}})
    first = output(tmp_path, 1, [("1", {"seen": 1}), ("2", {"seen": 1})])
    usual = SearchCommitter._bulk

    def sleeps(self: SearchCommitter, chunk: Any) -> Any:
        monkeypatch.setattr(SearchCommitter, "_bulk", usual)
        refused = usual(self, chunk)
        for one in (first, output(tmp_path, 2, [("2", None)])):
            new_committer(search, tmp_path, index).commit(one, 2)
        search.request("POST", f"{index}/_refresh")
        return refused

    monkeypatch.setattr(SearchCommitter, "_bulk", sleeps)
    new_committer(search, tmp_path, index).commit(first, 2)
    assert search.documents(index) == {"1": {"seen": 1}}


def test_a_repeated_commit_changes_nothing(search: OpenSearch, tmp_path: Path) -> None:
    index = name()
    first = output(tmp_path, 1, [("1", {"seen": 1}), ("2", {"seen": 1}), ("2", {"seen": 2}), (None, {"seen": 5})])
    one = new_committer(search, tmp_path, index)
    one.commit(first, 1)
    search.request("PUT", f"{index}/_doc/1", {"seen": 100})  # somebody else
    before = search.documents(index)
    assert sorted(each["seen"] for each in before.values()) == [2, 5, 100]
    one.commit(first, 1)
    assert search.documents(index) == before


def test_groups_share_the_versions_of_an_epoch(search: OpenSearch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An id may be in another group in the next epoch, on a host whose clock is behind."""
    index = name()
    groups = [new_committer(search, tmp_path, index, group) for group in ("0", "1")]
    groups[0].commit(output(tmp_path, 1, [("5", {"seen": 1})]), 1)
    groups[1].commit(output(tmp_path, 1, [(str(n), {"seen": 1}) for n in range(3)]), 1)
    monkeypatch.setattr(committer.time, "time_ns", lambda: 1_000_000)
    groups[0].commit(output(tmp_path, 2, [("2", {"seen": 2})]), 2)
    groups[1].commit(output(tmp_path, 2, [("5", {"seen": 2})]), 2)
    assert {id: each["seen"] for id, each in search.documents(index).items()} == {"0": 1, "1": 1, "2": 2, "5": 2}


def test_a_state_root_that_was_put_back_is_refused(search: OpenSearch, tmp_path: Path) -> None:
    index = name()
    one = new_committer(search, tmp_path, index)
    one.commit(output(tmp_path, 9, [("1", {"seen": 9})]), 9)
    with pytest.raises(JobFailed, match=r"entry '0123/.*/sink' .*epoch 9 was committed, but the job's newest is 2\."):
        one.commit(output(tmp_path, 2, [("1", {"seen": 2})]), 2)
    assert search.documents(index) == {"1": {"seen": 9}}


# -- elements


class Stored(NamedTuple):
    key: int
    seen: int


@pytest.mark.parametrize("id", ["key", lambda row: row.key])
def test_change_records_delete_documents(search: OpenSearch, tmp_path: Path, id: Any) -> None:
    index = name()
    messages = [
        {"op": "c", "before": None, "after": {"key": 1, "seen": 1}},
        {"op": "c", "before": None, "after": {"key": 2, "seen": 1}},
        {"op": "u", "before": {"key": 2, "seen": 1}, "after": {"key": 3, "seen": 2}},
        {"op": "d", "before": {"key": 1, "seen": 1}, "after": None},
        {"op": "r", "before": None, "after": {"key": 4, "seen": 1}},
    ]
    schema = fp.DebeziumJsonDeserializationSchema(Stored)
    (part,) = schema.read(pa.array([json.dumps(each).encode() for each in messages], pa.binary()))
    changes = list(schema.get_produced_type().from_columns(part.elements.columns))
    run_elements(tmp_path, fp.OpenSearchSink(search.url, index, id=id), changes, schema.get_produced_type())
    assert counts(search, index) == [(3, 2), (4, 1)]


def test_rows_of_a_kind_and_a_function(search: OpenSearch, tmp_path: Path) -> None:
    index = name()

    def document(n: int) -> Any:
        if n == 0:
            return None
        return fp.Row.of_kind(RowKind.DELETE, key=1) if n == 5 else {"key": n % 3, "seen": n, "in": Stored(n, n)}

    run_elements(tmp_path, fp.OpenSearchSink(search.url, index, id="key", document=document), list(range(6)), int)
    assert counts(search, index) == [(0, 3), (2, 2)]
    assert search.documents(index)["2"]["in"] == {"key": 2, "seen": 2}


@pytest.mark.parametrize(
    ("id", "document", "message"),
    [
        ("key", lambda n: {"seen": n}, r"the id of 1 in the index '.*' is None; it must be a text or an integer"),
        (None, lambda n: n, "1 has no named fields; write records"),
        (None, lambda n: {"a": object()}, "cannot be encoded as a JSON document"),
        (None, lambda n: fp.Row.of_kind(RowKind.DELETE, key=1), "is a deletion, which needs ids"),
        (lambda n: "x" * 600, lambda n: {"a": 1}, "has 600 bytes; 512 are allowed"),
    ],
)
def test_documents_that_are_impossible_fail_before_their_epoch_is_committed(
    search: OpenSearch, tmp_path: Path, id: Any, document: Any, message: str
) -> None:
    with pytest.raises(ForkpointError, match=message):
        run_elements(tmp_path, fp.OpenSearchSink(search.url, name(), id=id, document=document), [1], int)


# -- failures


def test_a_document_that_the_mapping_refuses(search: OpenSearch, tmp_path: Path) -> None:
    """It is named. Skipped on request, it is durable with its reason, all others are in the index, and commits go on; one that is
    refused later is not skipped, too."""
    index = name()
    search.request("PUT", index, {"mappings": {"properties": {"seen": {"type": "long"}}}})
    one = new_committer(search, tmp_path, index)
    first = output(tmp_path, 1, [("7", {"seen": "x"}), ("8", {"seen": 1}), (None, {"seen": "y"}), (None, {"seen": 2})])
    message = rf"document '7' of the index '{index}': 400 mapper_parsing.*\[seen\]"
    for _ in range(2):
        with pytest.raises(OutputRefused, match=message):
            one.commit(first, 1)

    class Died(Exception): ...

    def dies(records: pa.Table) -> None:
        raise Died

    with pytest.raises(Died):
        one.commit_accepted(first, 1, dies)
    with pytest.raises(OutputRefused, match=message):
        new_committer(search, tmp_path, index).commit(first, 1)
    letters: list[dict[str, Any]] = []
    new_committer(search, tmp_path, index).commit_accepted(first, 1, lambda found: letters.extend(found.to_pylist()))
    assert [each["document"] for each in letters] == ['{"seen":"x"}', '{"seen":"y"}']
    assert letters[0]["id"] == "7"
    assert all("mapper_parsing" in each["error"] for each in letters)
    new_committer(search, tmp_path, index).commit(first, 1)
    new_committer(search, tmp_path, index).commit(output(tmp_path, 2, [("7", {"seen": 3})]), 2)
    assert sorted(each["seen"] for each in search.documents(index).values()) == [1, 2, 3]
    with pytest.raises(OutputRefused, match="document '9'"):
        new_committer(search, tmp_path, index).commit(output(tmp_path, 3, [("9", {"seen": "z"})]), 3)


def test_an_index_that_is_read_only(search: OpenSearch, tmp_path: Path) -> None:
    index = name()
    search.request("PUT", index, {"settings": {"index.blocks.write": True}})
    one = new_committer(search, tmp_path, index)
    first = output(tmp_path, 1, [("1", {"seen": 1})])
    with pytest.raises(SystemUnavailable, match=rf"'{index}' does not work: .*blocked"):
        one.commit(first, 1)
    search.request("PUT", f"{index}/_settings", {"index.blocks.write": False})
    one.commit(first, 1)
    assert search.documents(index) == {"1": {"seen": 1}}


def test_a_node_that_is_killed(search: OpenSearch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "SLOW_SECONDS", 0.5)
    index, elements = name(), 2_000
    running = InBackground(job(tmp_path, fp.OpenSearchSink(search.url, index), elements))
    running.wait_for(lambda s: s.epoch >= 5)
    search.kill()
    status = running.wait_for(lambda s: s.publishing_problem is not None)
    assert status.state == "running", running.result
    assert "sink 'sink'" in status.publishing_problem
    search.start()
    assert running.end().outcome == "finished"
    assert counts(search, index) == every(elements)


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (401, ConfigError, "Correct username and password"),
        (403, ConfigError, "Grant this user the right"),
        (429, SystemUnavailable, "does not work"),
        (503, SystemUnavailable, "does not work"),
        (413, JobFailed, "413"),
    ],
)
def test_requests_that_are_refused(
    search: OpenSearch, tmp_path: Path, status: int, kind: type[ForkpointError], message: str
) -> None:
    first = output(tmp_path, 1, [("1", {"seen": 1})])
    with gate(search.url, status, "_bulk") as url:
        create_ledger(SearchClient((search.url,)).connect())
        context = CommitterContext("sink", "job", "0", str(uuid.uuid4()), str(tmp_path))
        one = SearchCommitter(context, SearchClient((url,), "user", "secret"), "refused")
        with pytest.raises(kind, match=message) as raised:
            one.commit(first, 1)
        assert "secret" not in str(raised.value)
    with gate(search.url, status, "forkpoint-epochs") as url, pytest.raises(kind, match=message):
        run(tmp_path, fp.OpenSearchSink(url, "refused", username="user", password="secret"), 50)


def test_a_node_that_cannot_be_reached(tmp_path: Path) -> None:
    with pytest.raises(SystemUnavailable, match=r"OpenSearch at 127\.0\.0\.1:1 does not work: "):
        run(tmp_path, fp.OpenSearchSink("127.0.0.1:1", "i", password="p"), 100)


def test_arguments_that_are_impossible() -> None:
    with pytest.raises(ConfigError, match="hosts is ''; it must name"):
        fp.OpenSearchSink("", "i")
    with pytest.raises(ConfigError, match="index is 'I'"):
        fp.OpenSearchSink("h", "I")
    with pytest.raises(ConfigError, match="id is 5"):
        fp.OpenSearchSink("h", "i", id=5)  # type: ignore[arg-type]
    assert "secret" not in SearchClient(("https://u:secret@h:1",)).place
