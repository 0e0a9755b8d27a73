"""Kafka: a source and a sink, over librdkafka (``confluent-kafka``)."""
