"""Which of forkpoint's objects PyFlink's names stand for."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

# Most are the names of `forkpoint` itself.
_NAMES: dict[str, str] = {
    "pyflink": "",
    "pyflink.version": "",
    "pyflink.common": "Configuration Duration ExecutionConfig Instant JobClient JobExecutionResult JobStatus Row Time "
    "TypeInformation Types WatermarkStrategy",
    "pyflink.common.typeinfo": "TypeInformation Types",
    "pyflink.common.time": "Duration Instant Time",
    "pyflink.common.types": "Row",
    "pyflink.common.watermark_strategy": "TimestampAssigner WatermarkStrategy",
    "pyflink.datastream": "StreamExecutionEnvironment DataStream KeyedStream WindowedStream ConnectedStreams RuntimeExecutionMode RuntimeContext ProcessWindowFunction WindowFunction",
    "pyflink.datastream.functions": "KeyedProcessFunction RuntimeContext",
    "pyflink.datastream.state": "ValueStateDescriptor StateTtlConfig",
    "pyflink.datastream.window": "CountWindow TimeWindow TumblingEventTimeWindows SlidingEventTimeWindows EventTimeSessionWindows SessionWindowTimeGapExtractor",
    "pyflink.datastream.connectors": "",
    "pyflink.datastream.connectors.file_system": "FileSource FileSink",
    "pyflink.datastream.formats": "",
}
MODULES = {module: tuple(names.split()) for module, names in _NAMES.items()}
PACKAGES = frozenset(module.rpartition(".")[0] for module in MODULES)
_ELSEWHERE: dict[str, str] = {}


def names_of(module: str) -> Sequence[str]:
    """The names that a module of PyFlink has here."""
    return MODULES.get(module, ())


def resolve(module: str, name: str) -> object:
    """What a name of a module of PyFlink stands for."""
    place, _, other = _ELSEWHERE.get(f"{module}.{name}", "forkpoint").partition(":")
    return getattr(importlib.import_module(place), other or name)
