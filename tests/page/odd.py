"""A job whose names, keys and values are such as people do not expect."""

import sys

import forkpoint as fp

PLACE = 'a/b "x" <i>ü'
LARGEST_KEY, LARGE = 2**63 - 1, 2**70
HIDING = "from \u202eright\x1b[31m to left"


def large(each: str, state: int | None) -> tuple[str, int]:
    return each, LARGE


def hiding(each: str, state: str | None) -> tuple[str, str]:
    return each, HIDING


def build(env: fp.StreamExecutionEnvironment, directory: str) -> None:
    lines = env.from_source(fp.FileSource.text(directory), fp.WatermarkStrategy.no_watermarks(), "lines").uid("lines")
    by_key = lines.key_by(lambda _: LARGEST_KEY, int)
    by_key.map_with_state(large, fp.Types.BIG_INT()).uid("first").sink_to(fp.DiscardSink()).uid("to-first")
    by_key.map_with_state(hiding, str).uid("second").sink_to(fp.DiscardSink()).uid("to-second")
    by_key.map_with_state(hiding, str).uid(PLACE).sink_to(fp.DiscardSink()).uid("to-place")

    def fail(line: str) -> str:
        raise ValueError(line)

    lines.filter(lambda line: line == HIDING).map(fail, str).uid("fails").sink_to(fp.DiscardSink()).uid("to-fails")


if __name__ == "__main__":
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    build(env, sys.argv[1])
    env.execute("odd job")
