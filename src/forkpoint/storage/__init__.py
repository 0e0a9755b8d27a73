"""Durable storage: the protocol, file systems, object stores, and private files."""
