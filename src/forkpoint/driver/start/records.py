"""job.json, run.json and plan.json: a job's history for people and tools. Only manifests commit epochs."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from typing import Literal

from forkpoint.checkpoint.manifest import JOB, RUN, Job, Manifest, Run
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.checkpoint.plan import PLAN, RUNS, Plan, PlanInput, PlanOperator, PlanPattern
from forkpoint.driver.commit.skipped_records import Skipped
from forkpoint.driver.observe.events import Outcome
from forkpoint.graph.job import JobGraph, Operator
from forkpoint.graph.options import JobOptions
from forkpoint.graph.secrets import is_secret
from forkpoint.runtime.expressions.keys import how_keyed
from forkpoint.runtime.expressions.stamps import how_stamped
from forkpoint.storage.base import Storage


@cache
def versions() -> dict[str, str]:
    return {name: version(name) for name in ("forkpoint", "pyspark", "pyarrow")} | {"python": platform.python_version()}


@dataclass
class RunRecords:
    """The records of one run."""

    storage: Storage
    paths: JobPaths
    options: JobOptions
    plan: Plan
    started_ms: int
    _run: Run | None = None

    def start(self, manifest: Manifest) -> None:
        known = JOB.load_if_whole(self.storage, self.paths.job_file)
        options, created_ms = self.options, self.started_ms if known is None else known.created_ms
        job = Job(job=manifest.job, created_ms=created_ms, generation=manifest.generation, run=manifest.run)
        self.storage.put(self.paths.job_file, JOB.dump(job))
        self._run = Run(
            job=manifest.job,
            run=manifest.run,
            generation=manifest.generation,
            parent=manifest.parent,
            started_ms=self.started_ms,
            code_version=options.parameters.get("code_version"),
            versions=versions(),
            options={
                "parallelism": manifest.parallelism,
                "max_parallelism": manifest.max_parallelism,
                "engine": options.engine,
                "state_backend": options.state_backend,
                "interval_ms": options.checkpoint.interval_ms,
                "timeout_ms": options.checkpoint.timeout_ms,
                "min_pause_ms": options.checkpoint.min_pause_ms,
                "num_retained": options.checkpoint.num_retained,
                "restart_strategy": asdict(options.restart_strategy),
                "runtime_mode": options.runtime_mode.name,
                "max_epoch_rows": options.max_epoch_rows,
                "memory_bytes": options.memory_bytes,
                "parameters": {name: value for name, value in options.parameters.items() if not is_secret(name)},
            },
            machine=socket.gethostname(),
            pid=os.getpid(),
            emptied=manifest.emptied,
        )
        self.storage.put(self.paths.plan_file(manifest.run), PLAN.dump(self.plan))
        self._put(self._run)

    def ended_well(self, run: str) -> bool:
        record = RUN.load_if_whole(self.storage, self.paths.run_file(run))
        return record is not None and record.ended_well

    def note_published(self, newest: Manifest, now_ms: int, skipped: Collection[Skipped] = ()) -> None:
        """Record that the output of a dead run is published up to the job's newest manifest, except ``skipped`` records. If the
        run was killed after its last epoch, also record its regular end."""
        record = RUN.load_if_whole(self.storage, self.paths.run_file(newest.run))
        if record is None:
            return
        files = [*record.skipped, *(part.file for part in skipped)]
        record = record.replace(published=newest.epoch, skipped=list(dict.fromkeys(files)))
        if not newest.withheld and (newest.drained_early or newest.kind == "end"):
            outcome = "stopped" if newest.drained_early else "finished"
            record = record.replace(outcome=outcome, reason=None, ended_ms=record.ended_ms or now_ms)
        self._put(record)

    def end(
        self,
        outcome: Outcome | Literal["superseded"],
        reason: str | None,
        ended_ms: int,
        *,
        engine_lost: bool = False,
        published: int | None = None,
        records: Mapping[str, int] | None = None,
    ) -> None:
        """``reason``: the failure, if any. ``published``: the epoch up to which all output is published; the next run publishes
        the rest."""
        if self._run is not None:
            self._run = self._run.replace(
                outcome=outcome,
                reason=reason,
                ended_ms=ended_ms,
                engine_lost=engine_lost,
                published=published,
                records=dict(records or {}),
            )
            self._put(self._run)

    def _put(self, run: Run) -> None:
        self.storage.put(self.paths.run_file(run.run), RUN.dump(run))


def plan_of(graph: JobGraph) -> Plan:
    """The graph's operators and their inputs."""
    has_queries = any(type(operator.spec).__module__.startswith("forkpoint.relational.") for operator in graph.operators)

    def described(operator: Operator) -> PlanOperator:
        inputs = [
            PlanInput(
                uid=graph.by_id[edge.upstream].uid,
                ship_strategy=edge.partitioning.ship_strategy,
                tag=edge.tag,
                crosses=edge.crosses,
            )
            for edge in operator.inputs
        ]
        output = operator.output_type
        return PlanOperator(
            uid=operator.uid,
            name=operator.name,
            kind=operator.kind,
            stage=operator.stage,
            generated_uid=operator.generated_uid,
            stateful=operator.stateful,
            type=None if output is None else repr(output),
            properties={**(_properties(operator) if has_queries else {}), **_runs(operator)},
            pattern=_pattern(operator) if operator.kind == "pattern" else None,
            inputs=inputs,
        )

    return Plan(operators=[described(operator) for operator in graph.operators])


def _properties(operator: Operator) -> dict[str, str]:
    from forkpoint.relational.descriptions import properties_of  # loads what only queries need

    return properties_of(operator.spec, operator.output_type)


def _runs(operator: Operator) -> dict[str, str]:
    how = "; ".join(filter(None, (*map(how_keyed, operator.inputs), how_stamped(operator), operator.spec.how(operator))))
    return {RUNS: how} if how and operator.over_columns else {}


def _pattern(operator: Operator) -> PlanPattern:
    from forkpoint.patterns.compiling import compiled  # loads what only patterns need
    from forkpoint.patterns.explanation import recorded

    return recorded(compiled(operator.spec.pattern))  # type: ignore[attr-defined]
