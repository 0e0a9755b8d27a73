"""Metrics in Prometheus' text format, and the ways to them."""

import json
import re
import subprocess
from pathlib import Path

import httpx
import pytest
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from forkpoint.protocol.endpoint import HOST
from forkpoint.protocol.exposition import DEFINITIONS, Measured, exposition, exposition_of_roots
from forkpoint.protocol.mailbox import by_mail
from forkpoint.protocol.messages import (
    BacklogMetrics,
    CatchUpMetrics,
    DurationMetrics,
    MetricsMessage,
    OperatorMetrics,
    Problem,
    StateMetrics,
    UserMetrics,
    WatermarkMetrics,
)
from forkpoint.protocol.registry import find_live
from servers.debian import debian

ROOT = Path(__file__).resolve().parents[2]


def message(job="job"):
    """One that has a value of each metric."""
    duration = DurationMetrics(count=3, sum_ms=1500, bounds_ms=[100, 500], at_most=[1, 2])
    place = {"uid": "map", "group": "io.in", "name": 'odd "name"\n'}
    return MetricsMessage(
        job=job,
        run="run",
        state="running",
        now_ms=100_000,
        started_ms=1000,
        since_ms=2000,
        epoch=7,
        epochs=3,
        committed_ms=90_000,
        epoch_ms=250,
        restarts=1,
        rescalings=2,
        parallelism=4,
        operators={
            "in": OperatorMetrics(records_in=5, records_out=5, busy_ms=1500.0, bytes_in=10, bytes_out=20),
            "map": OperatorMetrics(records_in=5, records_out=4, late_records_dropped=2, watermark_ms=40_000),
        },
        watermarks={"in": WatermarkMetrics(watermark_ms=39_000, split="3")},
        backlog={
            "in": BacklogMetrics(amount=9, unit="elements"),
            "files": BacklogMetrics(amount=8, unit="bytes", files=3),
        },
        user=[
            UserMetrics(**place, kind="counter", value=-3.0),
            UserMetrics(**place, kind="meter", value=6.0),
            UserMetrics(**place, kind="gauge", subtask=1, value=2.5),
            UserMetrics(**place, kind="distribution", value=2.0, sum=7.0, least=3.0, greatest=4.0),
        ],
        durations={"plan": duration, "epoch": duration},
        changelog_bytes=11,
        snapshot_bytes=12,
        state_entries=13,
        state_bytes=14,
        catch_ups={"memory": CatchUpMetrics(count=5, sum_ms=100)},
        stores_reused=15,
        unpublished={"out": 2},
        savepoints=1,
        savepoints_failed=1,
        savepoint_ms=70_000,
        states=[
            StateMetrics(uid="map", name="pages", kind="map", entries=16, bytes=17),
            StateMetrics(uid="map", name="last", kind="value", entries=18, bytes=19),
            StateMetrics(uid="map", name="_event_timers", kind="timers-event", entries=20, bytes=21),
            StateMetrics(uid="map", name="_processing_timers", kind="timers-processing", entries=0, bytes=0),
        ],
        silent_ms={"in": 5_000},
        problems=[Problem(severity="warning", kind="no-data", uid="in", text="no data: …")],
    )


def samples(text):
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            place = sample.name, frozenset(sample.labels.items())
            assert place not in found
            found[place] = sample.value
    return found


def value(text, metric, **labels):
    return samples(text)[metric, frozenset({"job": "job", **labels}.items())]


def test_prometheus_own_parser_reads_each_metric():
    text = exposition([message()])
    named = {name for name, _ in samples(text)}
    for definition in DEFINITIONS:
        assert named & {definition.name, f"{definition.name}_total"}, definition.name
    assert value(text, "forkpoint_operator_busy_seconds_total", uid="in") == 1.5
    assert value(text, "forkpoint_operator_watermark_lag_seconds", uid="map") == 60
    assert value(text, "forkpoint_source_watermark_seconds", uid="in", split="3") == 39
    assert value(text, "forkpoint_source_backlog_records", uid="in") == 9
    assert value(text, "forkpoint_source_backlog_bytes", uid="files") == 8
    assert value(text, "forkpoint_source_backlog_files", uid="files") == 3
    assert value(text, "forkpoint_source_silence_seconds", uid="in") == 5
    assert value(text, "forkpoint_job_problem", severity="warning", kind="no-data", uid="in") == 1
    assert value(text, "forkpoint_operator_state_entries", uid="map", state="pages") == 16
    assert value(text, "forkpoint_operator_state_bytes", uid="map", state="last") == 19
    assert value(text, "forkpoint_operator_timers", uid="map", domain="event") == 20
    assert value(text, "forkpoint_operator_timers", uid="map", domain="processing") == 0
    assert not any("timers" in dict(labels).get("state", "") for _, labels in samples(text))
    assert value(text, "forkpoint_savepoint_age_seconds") == 30
    assert value(text, "forkpoint_epoch_duration_seconds_bucket", phase="plan", le="0.5") == 2
    assert value(text, "forkpoint_epoch_duration_seconds_bucket", phase="plan", le="+Inf") == 3
    user = {"uid": "map", "group": "io.in", "name": 'odd "name"\n'}
    assert value(text, "forkpoint_user_counted", **user) == -3
    assert value(text, "forkpoint_user_value", **user, subtask="1") == 2.5
    assert value(text, "forkpoint_user_distribution_sum", **user) == 7


def test_what_is_unknown_is_left_out():
    early = structs.replace(message(), savepoint_ms=None, state_bytes=None, operators={}, durations={}, states=None)
    named = {name for name, _ in samples(exposition([early]))}
    assert not named & {
        "forkpoint_savepoint_age_seconds",
        "forkpoint_state_bytes",
        "forkpoint_operator_busy_seconds_total",
        "forkpoint_operator_state_entries",
    }


def test_several_jobs_are_one_text_and_a_lost_one_has_a_state():
    text = exposition([message(), message("second")], {"gone": "lost"})
    assert text.count("# TYPE forkpoint_job_epoch ") == 1
    found = samples(text)
    for job, state in (("job", "running"), ("second", "running"), ("gone", "lost")):
        states = {
            dict(labels)["state"]: value
            for (name, labels), value in found.items()
            if name == "forkpoint_job_state" and dict(labels)["job"] == job
        }
        assert [state for state, value in states.items() if value] == [state]


def promtool(*arguments, **options):
    program = debian("prometheus", "promtool")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, cwd=ROOT / "deploy/monitoring", **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_promtool_finds_no_fault_in_the_metrics():
    assert promtool("check", "metrics", input=exposition([message()])) == ""


def test_promtool_accepts_the_alert_rules_and_their_tests_pass():
    promtool("check", "rules", "forkpoint.rules.yaml")
    promtool("test", "rules", str(ROOT / "tests/control/alerts.test.yaml"))


def test_jobs_of_the_same_name_in_two_state_roots_are_told_apart():
    text = exposition_of_roots({"/a": Measured([message()], {}), "/b": Measured([message()], {"gone": "lost"})})
    assert promtool("check", "metrics", input=text) == ""
    found, plain = samples(text), samples(exposition([message()]))
    for root in ("/a", "/b"):
        for (name, labels), value in plain.items():
            assert found[name, labels | {("root", root)}] == value, name
    assert len(found) == 2 * len(plain) + sum(dict(labels)["job"] == "gone" for _, labels in found)


def test_the_documentation_lists_each_metric():
    exposed = {family.name for family in text_string_to_metric_families(exposition([message()]))}
    listed = re.findall(r"^\| `(forkpoint_\w+)` \|", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE)
    assert sorted(name.removesuffix("_total") for name in listed) == sorted(exposed)


def test_the_dashboard_asks_for_metrics_that_there_are(tmp_path):
    dashboard = json.loads((ROOT / "deploy/monitoring/forkpoint.dashboard.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    exposed = {name for name, _ in samples(exposition([message()]))}
    assert {name for expr in asked for name in re.findall(r"forkpoint_\w+", expr)} <= exposed
    records = [{"record": f"panel:{i}", "expr": expr.replace("$__rate_interval", "5m")} for i, expr in enumerate(asked)]
    rules = tmp_path / "rules.json"  # JSON is YAML
    rules.write_text(json.dumps({"groups": [{"name": "panels", "rules": records}]}))
    promtool("check", "rules", str(rules))


@pytest.fixture
def running(start):
    control, _ = start()
    while control.driver.metrics().epochs < 2:
        pass
    return control


def test_the_port_answers_with_metrics(running, storage):
    with find_live(storage, running.driver.job) as client:
        metrics = client.metrics()
    assert metrics.operators["counts"].records_in == metrics.operators["counts"].records_out > 0


def test_the_mailbox_answers_with_metrics(running, storage):
    with by_mail(storage, running.endpoint) as client:
        metrics = client.metrics()
    assert metrics.operators["counts"].records_in > 0


def test_the_port_can_be_scraped_with_its_token(running):
    url = f"http://{HOST}:{running.endpoint.port}/metrics"
    assert httpx.get(url, trust_env=False).status_code == 401
    answer = httpx.get(url, trust_env=False, headers={"authorization": f"Bearer {running.endpoint.token}"})
    assert answer.headers["content-type"].startswith("text/plain")
    assert "forkpoint_operator_records_in_total" in answer.text
