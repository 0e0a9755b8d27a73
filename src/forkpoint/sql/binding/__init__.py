"""Binds syntax trees to the tables of a catalogue: text has become a tree of sqlglot, and becomes a plan."""
