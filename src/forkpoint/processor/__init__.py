"""The savepoint processor: look into savepoints, change them, make them out of data, compare them.

    SavepointReader     a savepoint's states, timers and positions as tables, DataFrames, objects; SQL over them
    SavepointWriter     a new savepoint from an old one with changes, or from nothing
    diff                what two savepoints differ in

After Flink's State Processor API. Nothing of it runs a job; Spark, DuckDB and pandas are loaded where they are used.
"""

from forkpoint.processor.diffing import Sample, SavepointDiff, StateDiff, diff
from forkpoint.processor.reader import SavepointReader, StateReader
from forkpoint.processor.writer import SavepointWriter

__all__ = ["Sample", "SavepointDiff", "SavepointReader", "SavepointWriter", "StateDiff", "StateReader", "diff"]
