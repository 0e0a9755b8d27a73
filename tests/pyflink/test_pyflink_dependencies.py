"""Archives, requirements and files that a PyFlink program ships with its job."""

from __future__ import annotations

import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import forkpoint as fp


def environment() -> fp.StreamExecutionEnvironment:
    return fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})


def collected(stream: fp.DataStream) -> list[object]:
    with stream.execute_and_collect() as found:
        return list(found)


def read(name: str) -> str:
    return Path(name).read_text()


@pytest.mark.parametrize(("form", "target"), [("zip", "data"), ("gztar", "data"), ("zip", None)])
def test_functions_find_an_archive_in_their_directory(tmp_path, form, target):
    """As on PyFlink's workers; the program itself stays where it is. Fails before: nothing was unpacked."""
    (tmp_path / "content").mkdir()
    (tmp_path / "content" / "model.txt").write_text("7")
    archive = shutil.make_archive(str(tmp_path / "model"), form, tmp_path / "content")
    here = Path.cwd()
    env = environment()
    env.add_python_archive(archive, target)
    name = f"{target or Path(archive).name}/model.txt"
    for _ in range(2):  # each job of the environment
        assert collected(env.from_collection([name]).map(read)) == ["7"]
        assert Path.cwd() == here
    assert not Path(name).exists()


def test_archives_of_several_calls_are_all_there(tmp_path):
    env = environment()
    for name in "ab":
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            archive.writestr("text", name)
        env.add_python_archive(str(tmp_path / f"{name}.zip"), name)
    assert collected(env.from_collection(["a/text", "b/text"]).map(read)) == ["a", "b"]


def test_what_is_no_archive_is_told(tmp_path):
    with pytest.raises(fp.ConfigError, match=r"add_python_archive\('nothing.zip'\): there is no such file"):
        environment().add_python_archive("nothing.zip")
    (tmp_path / "x.zip").write_text("no archive")
    env = environment()
    env.add_python_archive(str(tmp_path / "x.zip"))
    with pytest.raises(fp.ConfigError, match=r"the archive '.*x.zip#x.zip' cannot be unpacked"):
        collected(env.from_collection([1]).map(lambda n: n))


def test_an_archive_cannot_write_outside(tmp_path):
    (tmp_path / "text").write_text("x")
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        archive.add(tmp_path / "text", "../../evil")
    env = environment()
    env.add_python_archive(str(tmp_path / "evil.tar"))
    with pytest.raises(fp.ConfigError, match="cannot be unpacked"):
        collected(env.from_collection([1]).map(lambda n: n))


def wheel(directory: Path, name: str) -> None:
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(directory / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", "def plus(a, b):\n    return a + b\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


def test_missing_requirements_are_installed_from_the_cache(tmp_path, monkeypatch):
    """Others, and PyFlink itself, are left alone. Fails before: nothing was installed."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    wheel(tmp_path, "forkpoint_missing_package")
    (tmp_path / "requirements.txt").write_text("# ours\napache-flink==1.15\nnumpy>=1\nforkpoint-missing-package==1.0\n")
    env = environment()
    env.set_python_requirements(str(tmp_path / "requirements.txt"), str(tmp_path))

    def add(n: int) -> int:
        from forkpoint_missing_package import plus  # type: ignore[import-not-found]

        return int(plus(n, 1))

    assert collected(env.from_collection([1, 2]).map(add)) == [2, 3]


def test_requirements_that_cannot_be_installed(tmp_path):
    (tmp_path / "requirements.txt").write_text("forkpoint-nobody-has-this==1\n")
    with pytest.raises(fp.ConfigError, match=r"pip cannot install forkpoint-nobody-has-this==1 .*; install them yourself"):
        environment().set_python_requirements(str(tmp_path / "requirements.txt"), str(tmp_path))
    with pytest.raises(fp.ConfigError, match=r"set_python_requirements\('nothing'\): No such file"):
        environment().set_python_requirements("nothing")
