"""The sink of the protocol's model whose output tasks commit, to a system that works as Kafka's transactions do: whoever begins
fences those before, looks at what was sent, and sends the rest and the epoch's number at once. What it has begun to send before
the epoch's commit is nobody's until then."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import protocol_model as model

from forkpoint.checkpoint.manifest import EpochOutput, Manifest
from forkpoint.contract import sink
from forkpoint.contract.sink import Committer, CommitterContext, CommittingSink, SinkContext, SinkWriter
from forkpoint.driver.commit.publisher import Publisher
from forkpoint.driver.run import assembly
from forkpoint.runtime.tasks import commits

LAG = 2  # epochs that wait to be published, before the driver commits them


class Fenced(Exception):
    pass


class LedgerSink(CommittingSink[Any]):
    pre_commits = True

    def __init__(self, directory: Path) -> None: ...

    def create_writer(self, context: SinkContext) -> SinkWriter[Any]:
        return _Writer(context)

    def create_committer(self, context: CommitterContext) -> Committer:
        return LedgerCommitter(context)

    def group(self, committable: Any) -> str:
        return str(committable["subtask"])


class _Writer(SinkWriter[Any]):
    def __init__(self, context: SinkContext) -> None:
        self._context = context
        self._values: list[Any] = []

    def write(self, batch: Any) -> None:
        self._values += batch.values

    def prepare_commit(self) -> list[Any]:
        if not self._values:
            return []
        return [{"subtask": self._context.subtask, "stored": self._context.stage(json.dumps(self._values).encode())}]


class LedgerCommitter(Committer):
    def __init__(self, context: CommitterContext) -> None:
        self._context = context
        self._token = 0
        self._begun: EpochOutput | None = None

    def pre_commit(self, output: EpochOutput) -> None:
        self.begin()
        if output.epoch > self.sent():
            self._begun = output

    def commit(self, output: EpochOutput, newest: int) -> None:
        with suppress(Fenced):
            return self._commit(output)
        self.commit(output, newest)  # and find what the other has sent

    def _commit(self, output: EpochOutput) -> None:
        begun, self._begun = self._begun, None
        if begun != output:
            self.begin()
            if output.epoch <= self.sent():
                return
        stored = [self._context.staged(each["stored"]) for each in output.committables]
        self.send([value for each in stored for value in json.loads(each)], output.epoch)

    @property
    def _name(self) -> str:
        return f"{self._context.incarnation}-{self._context.group}"

    def begin(self) -> None:
        model.step(f"begin {self._name}")
        fences = model._world().fences
        fences[self._name] += 1
        self._token = fences[self._name]

    def sent(self) -> int:
        model.step(f"look {self._name}")
        return model._world().sent.get(self._name, 0)

    def send(self, values: Sequence[Any], epoch: int) -> None:
        model.step(f"send {self._name}")
        world = model._world()
        if world.fences[self._name] != self._token:
            raise Fenced
        world.ledger += [(epoch, str(value)) for value in values]
        world.sent[self._name] = epoch


class InTurn(Publisher):
    """Commits when ``LAG`` epochs wait for it, on the driver's own thread, so that it is part of the schedule."""

    def _must_run(self, uid: str, lane: Any) -> None: ...

    def prepare(self, manifest: Manifest) -> None:
        super().prepare(manifest)
        for uid, lane in self._lanes.items():
            if not lane.outputs:
                self._pre_commit(uid, lane)

    def _catch_up(self) -> None:
        for uid, lane in self._lanes.items():
            while lane.outputs and not self._try(uid, lane):
                pass

    @property
    def full(self) -> bool:
        if any(len(lane.outputs) >= LAG for lane in self._lanes.values()):
            self._catch_up()
        return super().full

    def wait(self, seconds: float) -> bool:
        self._catch_up()
        return super().wait(0)


class Kept:
    """The committers of each driver, which are in one process here."""

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(model._here.actor).setdefault("kept", commits._Kept()), name)


@contextmanager
def in_turn() -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(patch.object(sink, "open_storage", lambda _: model.ModelStorage(model._world().files)))
        stack.enter_context(patch.object(assembly, "Publisher", InTurn))
        stack.enter_context(patch.object(commits, "_THREADS", 1))
        stack.enter_context(patch.object(commits, "_kept", Kept()))
        yield
