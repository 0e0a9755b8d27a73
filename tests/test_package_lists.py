"""A package of packages/ is in each list of packages. What fails names the list."""

import re
import tomllib
from pathlib import Path

import pytest

import forkpoint
from forkpoint import extras

ROOT = Path(__file__).resolve().parents[1]
MODULES = {path.parent.name for path in ROOT.glob("packages/*/src/*/__init__.py")}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LINTER = PROJECT["tool"]["importlinter"]
CONTRACTS = {each["name"]: each for each in LINTER["contracts"]}
INSTALL = (ROOT / "docs" / "install.md").read_text()

LISTS = {
    "extras.py, PACKAGES": extras.PACKAGES,
    "pyproject.toml, tool.uv.sources": [name.replace("-", "_") for name in PROJECT["tool"]["uv"]["sources"]],
    "pyproject.toml, root_packages": LINTER["root_packages"],
    "pyproject.toml, the core knows no package beside it": CONTRACTS["the core knows no package beside it"]["forbidden_modules"],
    "pyproject.toml, packages know nothing of each other": CONTRACTS["packages know nothing of each other"]["modules"],
    "docs/install.md, Packages": re.findall(r"^\| `forkpoint-[\w-]+` \| `(\w+)` \|", INSTALL, re.MULTILINE),
}
OF_CONNECTORS = next(each for name, each in CONTRACTS.items() if name.startswith("connector packages import"))


@pytest.mark.parametrize("name", LISTS)
def test_each_list_has_all_packages(name):
    assert set(LISTS[name]) - {"forkpoint"} == MODULES, name


def test_each_connector_package_has_the_contract_of_connectors():
    assert set(OF_CONNECTORS["source_modules"]) == set(extras.CONNECTORS), OF_CONNECTORS["name"]


@pytest.mark.parametrize("extra", PROJECT["project"]["optional-dependencies"])
def test_each_extra_is_documented(extra):
    assert f"`forkpoint[{extra}]`" in INSTALL, f"docs/install.md lacks {extra}"


LISTED_AS = {"PrintSink": "print()", "DataStreamSink": "sink_to", "NumberSequenceSource": "CounterSource"}


@pytest.mark.parametrize("name", [name for name in forkpoint.__all__ if name.endswith(("Source", "Sink"))])
def test_each_source_and_sink_is_listed_with_its_guarantee(name):
    page = (ROOT / "docs" / "sources-sinks.md").read_text()
    assert LISTED_AS.get(name, f"fp.{name}") in page, f"docs/sources-sinks.md lacks {name}"
