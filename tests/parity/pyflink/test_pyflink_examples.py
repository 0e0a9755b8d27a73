"""PyFlink's own examples, from its wheel, which the first run downloads: they run and print what Flink prints, or are refused."""

import flink_examples
import pytest

from servers.kafka import Kafka


def outcome(example: str, kafka: Kafka, engine: str = "local") -> tuple[str, str]:
    return flink_examples.on_forkpoint(example, engine, lambda: kafka)


@pytest.mark.parametrize("example", flink_examples.RUN)
def test_an_example_prints_what_flink_prints(example):
    found, why = flink_examples.on_forkpoint(example, "local", pytest.fail)
    assert found == "same", why


# The others differ in their (de)serializer only; tests/formats is about those.
QUICK = ("connectors/kafka_json_format", "connectors/kafka_row_field_extractor_example")


@pytest.mark.parametrize(
    "example",
    [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in flink_examples.KAFKA],
)
def test_an_example_with_kafka_prints_and_writes_what_flink_does(example, kafka):
    found, why = outcome(example, kafka)
    assert found == "same", why


@pytest.mark.parametrize("example", flink_examples.REFUSED)
def test_only_what_needs_elasticsearch_pulsar_or_functions_is_refused(example):
    assert any(name in f"{example} {flink_examples.REFUSED[example]}" for name in ("elasticsearch", "pulsar", "udf"))
    found, why = flink_examples.on_forkpoint(example, "local", pytest.fail)
    assert found == "refused", why


def test_no_example_is_left_out():
    place = flink_examples.directory()
    files = [file for folder in ("datastream", "table") for file in (place / folder).rglob("*.py") if file.name != "__init__.py"]
    examples = {str(file.relative_to(place).with_suffix("")).removeprefix("datastream/") for file in files}
    assert examples == {*flink_examples.EXAMPLES, *flink_examples.LEFT_OUT}


@pytest.mark.slow  # other tests run PyFlink programs, and commands of forkpoint, on Spark
@pytest.mark.spark
def test_an_example_prints_what_flink_prints_on_spark(kafka):
    found, why = outcome("windowing/sliding_time_window", kafka, "spark")
    assert found == "same", why
