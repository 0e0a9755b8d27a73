"""Lookups of databases and HTTP services, for lookup joins."""
