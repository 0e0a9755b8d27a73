"""Cassandra: a sink, over Apache's driver (``cassandra-driver``)."""
