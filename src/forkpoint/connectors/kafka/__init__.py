"""Kafka: a source, over librdkafka (``confluent-kafka``)."""
