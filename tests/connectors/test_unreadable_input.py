"""Input that can never be read becomes a dead letter or is skipped, and the job goes on with the rest."""

import gzip

import pytest

import forkpoint as fp

BAD = fp.OutputTag("bad", fp.DeadLetter)


def read(tmp_path, type=None):
    """What a bounded job reads of a directory: the elements' numbers, and the dead letters."""
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    source = fp.FileSource.json(tmp_path, type, bounded=True, on_parse_error=BAD)
    rows = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    good, bad = fp.CollectSink(), fp.CollectSink()
    rows.map(lambda row: row["a"], int).uid("number").sink_to(good).uid("good")
    rows.get_side_output(BAD).sink_to(bad).uid("bad")
    env.execute()
    return sorted(good.take()), bad.take()


@pytest.mark.parametrize("type", [None, dict[str, object]], ids=["untyped", "typed"])
@pytest.mark.parametrize("depth", [201, 900, 5_000, 100_000])
def test_json_nested_too_deeply_becomes_a_dead_letter(tmp_path, depth, type):
    lines = ['{"a": 1}', '{"a": 2, "x": ' + "[" * depth + "]" * depth + "}", '{"a": 3, "x": "' + "[" * depth + '"}']
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    numbers, (letter,) = read(tmp_path, type)
    assert numbers == [1, 3]
    assert f"nested {depth + 1} levels deep" in letter.problem
    assert letter.place["line"] == "2"


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_truncated_file_becomes_one_dead_letter(tmp_path, share):
    whole = gzip.compress("".join(f'{{"a": {n}}}\n' for n in range(1000)).encode())
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[: int(len(whole) * share)])
    (tmp_path / "whole.jsonl").write_text('{"a": -1}\n')
    (tmp_path / "early.jsonl").write_text('{"a": -2}\n')
    numbers, (letter,) = read(tmp_path)
    assert numbers == [-2, -1]
    assert letter.place == {"file": str(tmp_path / "cut.jsonl.gz")}
    assert "cannot be decompressed as gzip" in letter.problem
