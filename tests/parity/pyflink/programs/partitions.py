"""What moves elements without changing them."""

from parity_inputs import readings

INPUTS = {"readings": readings(seed=50, count=40)}
ORDERED = False


def program(readings):
    return {
        "rebalance": readings.rebalance().map(lambda r: (r[0], r[2])),
        "shuffle": readings.shuffle().map(lambda r: (r[0], r[2])),
        "rescale": readings.rescale().map(lambda r: (r[0], r[2])),
        "forward": readings.forward().map(lambda r: (r[0], r[2])),
    }
