"""Apache Kafka: a source and a sink, on librdkafka's client."""
