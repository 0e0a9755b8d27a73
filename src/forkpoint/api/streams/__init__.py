"""Streams: their operators, keyed streams, windows, joins and sinks."""
