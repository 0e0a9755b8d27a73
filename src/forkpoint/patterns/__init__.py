"""Patterns over keyed streams, after Flink's CEP library: what a user writes, the automaton that it becomes, and its operator.

`pattern` and `conditions` are what a program declares, `skipping` what happens after a match. `compiling` makes an `automaton` of
them, whose states are what a partial match waits for. `matching` runs the automaton over one key's events: partial matches are
runs of it, which share the steps that they have in common. `stored` is the typed form of runs in state, and `operator` feeds
sorted events to them.
"""
