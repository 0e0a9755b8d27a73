"""HttpLookup against a real service that is slow, fails, and dies."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from lookup_jobs import joining
from service import Service, serving

import forkpoint as fp
from forkpoint.errors import ConfigError, ForkpointError, JobFailed, SystemUnavailable
from forkpoint.graph.options import RestartStrategy
from forkpoint.testing import PAUSE, OperatorHarness, run_local

NEVER_AGAIN = fp.NoRetryStrategy()


@pytest.fixture(scope="module")
def running() -> Iterator[Service]:
    with serving() as service:
        yield service


@pytest.fixture
def service(running: Service) -> Service:
    running.begin()
    return running


def found_for(lookup: Any, keys: list[Any], **options: Any) -> list[Any]:
    """What the lookup join makes of the keys, in their order."""
    with OperatorHarness(lambda s: s.lookup_join(lookup, key=lambda k: k, **options)) as harness:
        harness.process_elements([(key, None) for key in keys])
        assert [key for key, _ in harness.output] == keys
        return [found for _, found in harness.output]


class Person(NamedTuple):
    name: str
    since: fp.Instant
    city: str | None = None


def test_answers_and_misses(service: Service) -> None:
    ann = {"name": "ann", "age": 30, "since": "2024-02-03T04:05:06Z"}
    assert found_for(fp.HttpLookup(service.url), ["ann", "eve", "ann", "nobody", "null"]) == [
        ann,
        None,
        ann,
        None,
        None,
    ]
    assert service.asked == {"ann": 1, "eve": 1, "nobody": 1, "null": 1}
    person = Person("ann", datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC))
    assert found_for(fp.HttpLookup(service.url, result_type=Person), ["ann", "moved", "eve"]) == [person, person, None]
    ages = fp.HttpLookup(service.url, result_type=int, extract=lambda json: json["age"])
    assert found_for(ages, ["ann", "bob", "a/b ä?"]) == [30, 40, 50]


def test_keys_of_several_parts(service: Service) -> None:
    url = service.url.replace("people/{key}", "cities/{0}/{1}")
    lookup = fp.HttpLookup(url, extract=lambda json: json["data"])
    assert found_for(lookup, [("New York", 7)]) == [{"where": "New York", "who": "7"}]
    with pytest.raises(JobFailed, match=r"key \('Rome',\) has 1 parts, fewer than the URL"):
        found_for(lookup, [("Rome",)])


def test_requests_are_concurrent_up_to_the_capacity_on_connections_that_are_kept(service: Service) -> None:
    service.seconds = 0.02
    keys = [f"p{n}" for n in range(40)]
    with OperatorHarness(lambda s: s.lookup_join(fp.HttpLookup(service.url, capacity=8), key=lambda k: k)) as harness:
        harness.process_elements([(key, None) for key in keys])
        harness.process_elements([(key, None) for key in keys])
        assert harness.output == [(key, None) for key in keys * 2]
    assert service.most_in_flight == 8
    assert len(service.clients) == 8


@pytest.mark.parametrize("status", [429, 500, 503])
def test_failures_are_repeated_and_then_pause_the_job(service: Service, status: int) -> None:
    service.failures = [status] * 3
    retry = fp.FixedDelayRetryStrategy(3, 1)
    assert found_for(fp.HttpLookup(service.url), ["ann"], retry_strategy=retry) != [None]
    assert service.asked["ann"] == 4
    service.failures = [status] * 9
    with pytest.raises(
        SystemUnavailable, match=rf"operator .*\['ann'\] failed: GET http.*/people/ann answers {status} .*: not now"
    ):
        found_for(fp.HttpLookup(service.url), ["ann"], retry_strategy=retry)


def test_a_slow_answer_is_left(service: Service) -> None:
    service.seconds = 30
    lookup = fp.HttpLookup(service.url, request_timeout=timedelta(milliseconds=50))
    with pytest.raises(SystemUnavailable, match="no answer within 50 ms"):
        found_for(lookup, ["ann"], retry_strategy=fp.FixedDelayRetryStrategy(1, 1))
    assert service.asked["ann"] == 2
    with pytest.raises(SystemUnavailable, match="no answer within 120 ms; increase the timeout"):
        found_for(fp.HttpLookup(service.url), ["ann"], timeout=timedelta(milliseconds=120))


def test_a_service_that_dies_pauses_the_job(service: Service) -> None:
    lookup = fp.HttpLookup(service.url, result_type=int, extract=lambda json: json["age"])
    STEPS[2] = lambda: (service.die(), threading.Timer(0.4, service.start).start())
    build = joining(lookup, ahead=lambda s: s.map(acting, str), key=lambda n: n, key_type=str, retry_strategy=NEVER_AGAIN)
    orders = [("ann", 1), PAUSE, ("bob", 2), ("ann", 3)]
    run = run_local(build, orders, parallelism=1, options={"restart": RestartStrategy.fixed_delay(1, 50)})
    assert run.output == [("ann", 30), ("bob", 40), ("ann", 30)]
    assert run.restarts == 1


STEPS: dict[int, Any] = {}


def acting(order: Any) -> str:
    if (step := STEPS.pop(order[1], None)) is not None:
        step()
    return str(order[0])


def test_a_cache_outlives_the_service(service: Service) -> None:
    lookup = fp.HttpLookup(service.url, result_type=int, extract=lambda json: json["age"])
    build = joining(
        lookup,
        ahead=lambda s: s.map(acting, str),
        key=lambda n: n,
        key_type=str,
        cache_ttl=timedelta(hours=1),
        cache_misses=True,
    )
    STEPS[2] = service.die
    try:
        run = run_local(build, [("ann", 1), ("zoe", 1), PAUSE, ("ann", 2), ("zoe", 3)], parallelism=1)
    finally:
        service.start()
    assert run.output == [("ann", 30), ("zoe", None)] * 2
    assert service.asked == {"ann": 1, "zoe": 1}


def test_nobody_listens() -> None:
    with pytest.raises(SystemUnavailable, match=r"GET http://127\.0\.0\.1:1/ann does not work: ConnectError"):
        found_for(fp.HttpLookup("http://127.0.0.1:1/{key}"), ["ann"], retry_strategy=NEVER_AGAIN)


def test_wrong_credentials(service: Service) -> None:
    service.token = "Bearer right"
    with pytest.raises(
        ConfigError, match=r"operator .*answers 401 Unauthorized: who are you\?\. The credentials are wrong"
    ) as raised:
        found_for(fp.HttpLookup(service.url + "?token=hidden", headers={"Authorization": "Bearer wrong"}), ["ann"])
    assert not {"wrong ", "hidden"} & set(str(raised.value).split("The credentials")[0].split())
    assert service.asked["ann"] == 1, "not repeated"
    assert found_for(fp.HttpLookup(service.url, headers={"Authorization": "Bearer right"}), ["ann"]) != [None]
    service.token = "Basic YW5uOnNlY3JldA=="
    assert found_for(fp.HttpLookup(service.url, client_options={"auth": ("ann", "secret")}), ["ann"]) != [None]


@pytest.mark.parametrize(
    ("options", "key", "error", "text"),
    [
        ({}, "text", JobFailed, "the answer is not JSON"),
        ({"result_type": int}, "ann", JobFailed, "expected int, got.*Correct the result_type, or pass extract="),
        ({"missing_statuses": ()}, "eve", JobFailed, r"answers 404 Not Found: .*add the status to missing_statuses"),
        ({"client_options": {"colour": 1}}, "ann", ConfigError, "client_options or headers are wrong.*colour"),
        ({"extract": lambda json: json["no"]}, "ann", ForkpointError, r"KeyError: 'no' \(the keys \['ann'\]\)"),
    ],
)
def test_what_is_wrong_is_said(service: Service, options: Any, key: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        found_for(fp.HttpLookup(service.url, **options), [key])


@pytest.mark.parametrize("url", ["http://host/customers", "http://host/{name}", "http://host/{key", "http://host/{}"])
def test_a_wrong_template_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigError, match="HttpLookup"):
        fp.HttpLookup(url)


@pytest.mark.parametrize("url", ["ftp://host/{key}", "host/{key}"])
def test_a_url_of_another_protocol(url: str) -> None:
    with pytest.raises(ConfigError, match="Correct the URL of HttpLookup"):
        found_for(fp.HttpLookup(url), ["ann"])


def test_a_certificate_that_is_not_trusted(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            key,
            "-out",
            certificate,
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
        ],
        capture_output=True,
    )
    assert made.returncode == 0, made.stderr
    with serving(ssl_keyfile=key, ssl_certfile=certificate) as service:
        url = service.url.replace("http://127.0.0.1", "https://localhost")
        with pytest.raises(ConfigError, match=r"certificate verify failed.*Pass client_options=\{'verify'"):
            found_for(fp.HttpLookup(url), ["ann"])
        assert found_for(fp.HttpLookup(url, client_options={"verify": str(certificate)}), ["ann"]) != [None]
