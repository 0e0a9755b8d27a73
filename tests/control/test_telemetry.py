"""What a job sends to OpenTelemetry, received over HTTP."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import forkpoint as fp

KINDS = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


@pytest.fixture
def received(monkeypatch):
    """The requests that an OTLP receiver got, by path."""
    requests = {path: [] for path in KINDS}

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            requests[self.path].append(KINDS[self.path].FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format, *args):  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    yield requests
    server.shutdown()
    thread.join()
    server.server_close()


def run(root):
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_state_root(str(root)).set_max_epoch_rows(100)
    numbers = env.from_source(fp.CounterSource(300), fp.WatermarkStrategy.no_watermarks(), "n").uid("numbers")
    counted = numbers.key_by(lambda n: n % 5, int).map_with_state(lambda n, s: (n, (s or 0) + 1), int).uid("counts")
    counted.sink_to(fp.DiscardSink()).uid("out")
    env.execute("sent")


def attributes(thing):
    return {each.key: each.value for each in thing.attributes}


def test_a_job_sends_its_metrics_and_a_trace_of_each_epoch(received, tmp_path):
    run(tmp_path)
    spans = [
        span
        for request in received["/v1/traces"]
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    whole = {span.span_id: span for span in spans if span.name == "epoch"}
    assert len(whole) == 3
    for id, root in whole.items():
        parts = [span for span in spans if span.parent_span_id == id]
        assert [part.name for part in parts] == ["plan", "compute", "write", "commit", "publish"]
        assert parts[0].start_time_unix_nano == root.start_time_unix_nano
        assert parts[-1].end_time_unix_nano == root.end_time_unix_nano
        assert attributes(root)["forkpoint.epoch"] == attributes(parts[0])["forkpoint.epoch"]
        assert attributes(root)["forkpoint.job"].string_value == "sent"
        uids = attributes(parts[1])["forkpoint.uids"].array_value.values
        assert {uid.string_value for uid in uids} == {"numbers", "counts", "out"}
    metrics = {
        metric.name: metric
        for resource in received["/v1/metrics"][-1].resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    taken = {
        attributes(point)["uid"].string_value: point.as_int for point in metrics["forkpoint_operator_records_in"].sum.data_points
    }
    assert taken == {"numbers": 300, "counts": 300, "out": 300}
    assert metrics["forkpoint_operator_records_in"].sum.is_monotonic
    counts = {
        attributes(point)["phase"].string_value: point.count
        for point in metrics["forkpoint_epoch_duration_seconds"].histogram.data_points
    }
    assert counts == dict.fromkeys(("plan", "compute", "write", "commit", "publish"), 3)


def test_a_job_goes_on_where_nobody_receives(received, tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    run(tmp_path)


def test_nothing_is_sent_unless_it_is_asked_for(received, tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    run(tmp_path)
    assert received == {path: [] for path in KINDS}
