"""Streams: what can be done with elements, keyed streams, windows, joins; and where they go."""
