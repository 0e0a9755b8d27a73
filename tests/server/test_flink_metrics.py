"""Metrics by Flink's names: of a real job, and what is known of subtasks."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest
from rest_server import Server

from forkpoint.checkpoint.plan import PlanInput, PlanOperator
from forkpoint.errors import ConfigError
from forkpoint.protocol.messages import (
    BacklogMetrics,
    EpochEntry,
    JournalMessage,
    MetricsMessage,
    OperatorMetrics,
    UserMetrics,
    WatermarkMetrics,
)
from forkpoint.server import flink_metrics
from forkpoint.server.flink import vertex_id

NOW_MS = 1_000_000


@pytest.fixture
def http(server: Server) -> httpx.Client:
    http = server.client()
    while not http.get("/v1/jobs/counting/metrics?get=lastCompletedCheckpointId").json():
        time.sleep(0.1)
    return http


def operator(uid: str, *inputs: str) -> PlanOperator:
    return PlanOperator(
        uid=uid,
        name=uid,
        kind="map",
        stage=0,
        type=None,
        stateful=False,
        inputs=[PlanInput(uid=each, ship_strategy="FORWARD", crosses=False, tag=None) for each in inputs],
    )


def measured(parallelism: int = 2, **found: Any) -> MetricsMessage:
    nothing: dict[str, Any] = {name: {} for name in ("watermarks", "backlog", "durations", "catch_ups", "unpublished")}
    return MetricsMessage(
        job="job",
        run="run",
        state="running",
        now_ms=NOW_MS,
        started_ms=0,
        since_ms=NOW_MS - 5_000,
        epoch=7,
        epochs=5,
        committed_ms=NOW_MS,
        epoch_ms=0,
        restarts=1,
        rescalings=0,
        parallelism=parallelism,
        changelog_bytes=0,
        snapshot_bytes=0,
        state_entries=None,
        state_bytes=None,
        stores_reused=0,
        savepoints=0,
        savepoints_failed=0,
        savepoint_ms=None,
        **{**nothing, "user": [], **found},
    )


def values(found: dict[str, flink_metrics.VertexMetric]) -> dict[str, float]:
    return flink_metrics.of_subtasks(found)


def test_a_job_has_flinks_numbers(http: httpx.Client) -> None:
    names = [each["id"] for each in http.get("/v1/jobs/counting/metrics").json()]
    assert {"numRestarts", "uptime", "downtime", "lastCheckpointSize", "numberOfFailedCheckpoints"} <= set(names)
    get = "numRestarts,nothing,numberOfCompletedCheckpoints,lastCheckpointDuration,uptime,numRestarts"
    found = http.get(f"/v1/jobs/counting/metrics?get={get}").json()
    assert [each["id"] for each in found] == [
        "numRestarts",
        "numberOfCompletedCheckpoints",
        "lastCheckpointDuration",
        "uptime",
    ]
    restarts, *others = (each["value"] for each in found)
    assert restarts == "0"
    assert all(int(each) > 0 for each in others)
    assert int(others[-1]) < 3_600_000


def test_operators_have_flinks_numbers(http: httpx.Client) -> None:
    vertices = {each["uid"]: each for each in http.get("/v1/jobs/counting").json()["vertices"]}
    path = f"/v1/jobs/counting/vertices/{vertex_id('counts')}"
    shown = http.get(path).json()
    assert (shown["id"], shown["name"], shown["subtasks"]) == (vertices["counts"]["id"], vertices["counts"]["name"], [])
    assert http.get("/v1/jobs/counting/vertices/counts").json()["id"] == shown["id"]
    listed = [each["id"] for each in http.get(f"{path}/metrics").json()]
    assert {"numRecordsIn", "numRecordsOut", "accumulateBusyTimeMs", "numRecordsInPerSecond"} <= set(listed)
    (read, rate) = http.get(f"{path}/metrics?get=numRecordsIn,numRecordsInPerSecond").json()
    assert int(read["value"]) % 100 == 0 < int(read["value"])
    assert float(rate["value"]) > 0
    (over,) = http.get(f"{path}/subtasks/metrics?get=numRecordsIn&agg=sum").json()
    assert over.keys() == {"id", "sum"}
    assert over["sum"] >= int(read["value"])
    assert http.get(f"{path}/watermarks").json() == []  # there is no event time
    assert http.get("/v1/jobs/counting/vertices/nothing/metrics").status_code == 404
    for wrong in ("agg=median", "subtasks=0"):
        refused = http.get(f"{path}/subtasks/metrics?{wrong}")
        assert refused.status_code == 400
        assert wrong.split("=")[0] in refused.json()["errors"][0]


def test_jobs_are_aggregated(http: httpx.Client) -> None:
    (all_jobs,) = http.get("/v1/jobs/metrics?get=numRestarts").json()
    assert all_jobs == {"id": "numRestarts", "min": 0.0, "max": 0.0, "avg": 0.0, "sum": 0.0}
    (one,) = http.get("/v1/jobs/metrics?jobs=counting&get=numberOfCompletedCheckpoints,nothing&agg=max").json()
    assert one.keys() == {"id", "max"}
    assert one["max"] > 0
    assert {"id": "uptime"} in http.get("/v1/jobs/metrics").json()
    assert http.get("/v1/jobs/metrics?jobs=other").status_code == 404


def test_of_counts_only_the_whole_is_known_unless_there_is_one_subtask() -> None:
    own = {"a": OperatorMetrics(records_in=10, busy_ms=7.6, bytes_out=3)}
    two = flink_metrics.vertex_metrics(operator("a"), measured(operators=own), None)
    assert values(two) == {
        "numRecordsIn": 10,
        "numRecordsOut": 0,
        "numBytesIn": 0,
        "numBytesOut": 3,
        "numLateRecordsDropped": 0,
        "accumulateBusyTimeMs": 8,
    }
    (over,) = flink_metrics.aggregated_subtasks(two, 2, "numRecordsIn", None)
    assert over.model_dump(exclude_none=True) == {"id": "numRecordsIn", "sum": 10.0, "avg": 5.0}
    one = flink_metrics.vertex_metrics(operator("a"), measured(1, operators=own), None)
    assert values(one)["0.numRecordsIn"] == 10
    (over,) = flink_metrics.aggregated_subtasks(one, 1, "numRecordsIn", "max,min")
    assert over.model_dump(exclude_none=True) == {"id": "numRecordsIn", "min": 10.0, "max": 10.0}


def test_watermarks_are_those_of_every_subtask_and_an_assigner_has_another_than_its_input() -> None:
    own = {
        "source": OperatorMetrics(watermark_ms=500),
        "assigner": OperatorMetrics(watermark_ms=400),
        "late": OperatorMetrics(),
    }
    now = measured(operators=own, watermarks={"assigner": WatermarkMetrics(watermark_ms=400, split="a")})

    def marks(*names: str) -> dict[str, float]:
        found = values(flink_metrics.vertex_metrics(operator(*names), now, None))
        return {name: value for name, value in found.items() if "atermark" in name}

    assert marks("source") == {
        "currentOutputWatermark": 500,
        "watermarkLag": NOW_MS - 500,
        "0.currentOutputWatermark": 500,
        "1.currentOutputWatermark": 500,
        "0.watermarkLag": NOW_MS - 500,
        "1.watermarkLag": NOW_MS - 500,
    }
    assigner = marks("assigner", "source")
    assert (assigner["1.currentInputWatermark"], assigner["1.currentOutputWatermark"]) == (500, 400)
    assert marks("late", "source") == {}


def test_sources_say_what_they_have_still_to_read_and_for_how_long_they_have_read_nothing() -> None:
    now = measured(
        operators={"a": OperatorMetrics()}, backlog={"a": BacklogMetrics(amount=9, unit="elements")}, silent_ms={"a": 8}
    )
    found = values(flink_metrics.vertex_metrics(operator("a"), now, None))
    assert (found["pendingRecords"], found["sourceIdleTime"]) == (9, 8)


def test_a_rate_is_that_of_the_last_minute() -> None:
    def epoch(number: int, at_ms: int, **phases: int) -> EpochEntry:
        return EpochEntry(epoch=number, phases={"planned": at_ms, "committed": at_ms + 500, **phases}, records={"a": 300})

    epochs = [epoch(1, NOW_MS - 70_000), epoch(2, NOW_MS - 20_000), epoch(3, NOW_MS - 10_000)]
    under_way = EpochEntry(epoch=4, phases={"planned": NOW_MS - 100}, records={"a": 7})
    journal = JournalMessage(job="job", run="run", epochs=[*epochs, under_way], failures=[], savepoints=[], committed=3, failed=0)
    own = measured(operators={"a": OperatorMetrics(), "b": OperatorMetrics()})
    assert flink_metrics.vertex_metrics(operator("a"), own, journal)["numRecordsInPerSecond"].total == 30
    assert flink_metrics.vertex_metrics(operator("b"), own, journal)["numRecordsInPerSecond"].total == 0


def test_metrics_of_user_functions_are_there_but_for_rates() -> None:
    def user(name: str, kind: Any, value: float, **more: Any) -> UserMetrics:
        return UserMetrics(uid="a", group="group", name=name, kind=kind, value=value, **more)

    found = flink_metrics.vertex_metrics(
        operator("a"),
        measured(
            operators={"a": OperatorMetrics()},
            user=[
                user("bad", "counter", 4),
                user("events", "meter", 4),
                user("size", "gauge", 2.5, subtask=0),
                user("size", "gauge", 3, subtask=1),
                user("took", "distribution", 2, sum=10, least=4, greatest=6),
                UserMetrics(uid="b", group="", name="other", kind="counter", value=1),
            ],
        ),
        None,
    )
    assert {name: value for name, value in values(found).items() if "group" in name} == {
        "group.bad": 4,
        "0.group.size": 2.5,
        "1.group.size": 3,
        "group.took_min": 4,
        "group.took_max": 6,
        "group.took_mean": 5,
    }
    (size,) = flink_metrics.aggregated_subtasks(found, 2, "group.size", None)
    assert size.model_dump() == {"id": "group.size", "min": 2.5, "max": 3.0, "avg": 2.75, "sum": 5.5}
    assert "group.size" not in [each.id for each in flink_metrics.aggregated_subtasks(found, 3, None, None)]
    with pytest.raises(ConfigError, match="`agg` has 'p99'; there are min, max, avg, sum"):
        flink_metrics.aggregated_subtasks(found, 2, None, "p99")
