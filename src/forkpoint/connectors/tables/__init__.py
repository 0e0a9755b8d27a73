"""Sinks for tables of a lakehouse: Delta Lake and Apache Iceberg."""
