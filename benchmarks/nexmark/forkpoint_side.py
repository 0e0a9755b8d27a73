"""Nexmark on forkpoint: ``forkpoint_side.py ENGINE PARALLELISM DIRECTORY``. Reads names of files with statements (between NULs),
runs each, and answers with the seconds that its INSERT took, or its ``STREAM QUERY …``, with the arguments of ``streamed``."""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

from stream_programs import streamed

import forkpoint as fp


def table_environment(env: fp.StreamExecutionEnvironment) -> fp.StreamTableEnvironment:
    """With the function of q14."""
    t_env = fp.StreamTableEnvironment.create(env)
    t_env.create_temporary_function("count_char", fp.udf(lambda text, of: text.count(of), result_type="BIGINT"))
    return t_env


def main(engine: str, parallelism: str, directory: str) -> None:
    warnings.filterwarnings("ignore")
    for nth, file in enumerate(map(str.strip, sys.stdin)):
        env = fp.StreamExecutionEnvironment.get_execution_environment(
            {"execution.engine": engine, "execution.checkpointing.interval": "100 ms"}
        )
        t_env = table_environment(env.set_state_root(f"{directory}/{nth}").set_parallelism(int(parallelism)))
        for statement in Path(file).read_text().split("\0"):
            began = time.monotonic()
            if statement.startswith("STREAM"):
                _, query, *numbers = statement.split()
                streamed(query, env, *map(int, numbers)).sink_to(fp.DiscardSink()).uid("dropped")
                env.execute(f"{query} as a program")
            else:
                result = t_env.execute_sql(statement)
                if statement.startswith("INSERT"):
                    result.wait()
            if statement.startswith(("INSERT", "STREAM")):
                print(time.monotonic() - began, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
