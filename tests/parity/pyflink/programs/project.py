"""Tuples of some fields."""

from parity_inputs import readings

INPUTS = {"readings": readings(seed=82, count=30)}


def program(readings):
    return {"two": readings.project(3, 0), "one": readings.project(2)}
