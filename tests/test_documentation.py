"""Every public name is documented: it has a docstring, and its place in the reference. Pages load nothing over the network."""

import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pytest

import forkpoint

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from build_docs import loaded_from_elsewhere  # noqa: E402

REFERENCE = {page.stem: page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.rst")}
SUBMODULES = ("forkpoint.testing", "forkpoint.state_processor", "forkpoint.operations", "forkpoint.graphs")
PRESENT = [name for name in SUBMODULES if importlib.util.find_spec(name) is not None]
OF_SUBMODULES = [(module, name) for module in PRESENT for name in importlib.import_module(module).__all__]


@pytest.mark.parametrize("name", forkpoint.__all__)
def test_every_public_name_is_in_the_reference_once(name):
    entry = re.compile(rf"^\.\. auto\w+:: (?:forkpoint\.)?{name}$", re.MULTILINE)
    places = [page for page, text in REFERENCE.items() for _ in entry.findall(text)]
    assert len(places) == 1, f"{name} stands in {places or 'no page'} of docs/reference: give it one entry, .. autoclass:: {name}"


@pytest.mark.parametrize("name", forkpoint.__all__)
def test_the_reference_has_what_a_class_inherits_from_private_ones(name):
    """autodoc lists inherited members only where it is told to; those of public bases have their own entries."""
    cls = getattr(forkpoint, name)
    if not inspect.isclass(cls):
        return
    missing = [member for member in dir(cls) if not member.startswith("_") and not _is_listed(cls, member)]
    assert not missing, (
        f"{name} inherits {', '.join(missing)}: add :inherited-members: to its entry, with the first public base as its value"
    )


PUBLIC = {thing for thing in (getattr(forkpoint, name) for name in forkpoint.__all__) if inspect.isclass(thing)}


def _is_listed(cls, member):
    owner = next((base for base in cls.__mro__ if member in vars(base)), cls)
    if owner is cls or not owner.__module__.startswith("forkpoint."):
        return True
    if any(hasattr(base, member) and _is_listed(base, member) for base in cls.__mro__[1:] if base in PUBLIC):
        return True
    entry = re.search(
        rf"^\.\. autoclass:: (?:forkpoint\.)?{cls.__name__}\n((?:   :.*\n)*)",
        "\n".join(REFERENCE.values()),
        re.MULTILINE,
    )
    options = entry[1] if entry else ""
    if (named := re.search(r":members: (.+)", options)) and member in re.split(r",\s*", named[1]):
        return True
    inherited = re.search(r":inherited-members:(.*)", options)
    if inherited is None:
        return False
    names = [base.__name__ for base in cls.__mro__]
    stop = inherited[1].strip() or "object"
    return names.index(owner.__name__) < names.index(stop)


@pytest.mark.parametrize("name", forkpoint.__all__)
def test_every_public_name_has_a_docstring(name):
    thing = getattr(forkpoint, name)
    if callable(thing) and (isinstance(thing, type) or inspect.isfunction(thing)):
        assert (thing.__doc__ or "").strip(), f"{name} has no docstring"


@pytest.mark.parametrize("module", PRESENT)
def test_every_public_module_is_in_the_reference(module):
    assert any(f".. automodule:: {module}\n" in text for text in REFERENCE.values()), (
        f"{module} has no page in docs/reference: write one with .. automodule:: {module}"
    )


@pytest.mark.parametrize(("module", "name"), OF_SUBMODULES)
def test_every_name_of_a_public_module_has_a_docstring(module, name):
    thing = getattr(importlib.import_module(module), name)
    assert (thing if callable(thing) else type(thing)).__doc__, f"{module}.{name} has no docstring"


PATH = re.compile(r"`((?:[\w-]+/)+[\w.]*)`")
MADE = ("build/", "bin/", "only_changes.py")  # by tools, or by an example


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/development.md", "docs/decisions.md", "docs/new-operator.md"])
def test_the_paths_that_a_page_for_contributors_names_exist(page):
    """A module that moves takes its path along. NAME and SUBJECT stand for a new module."""
    named = {re.sub(r"(NAME|SUBJECT).*", "", path) for path in PATH.findall((ROOT / page).read_text(encoding="utf-8"))}
    places = (ROOT, ROOT / "src", ROOT / "src" / "forkpoint")
    missing = [path for path in named if not any((place / path).exists() for place in places)]
    assert not [path for path in missing if not path.startswith(MADE) and not path.endswith(MADE)]


@pytest.mark.parametrize("package", ["driver", "driver/serve", "protocol", "server"])
def test_the_modules_that_a_package_lists_exist(package):
    directory = ROOT / "src" / "forkpoint" / package
    text = (directory / "__init__.py").read_text(encoding="utf-8")
    listed = {
        name
        for names in re.findall(r"^ {0,4}([a-z_]+(?:, [a-z_]+)*)(?: {2,}| …)", text, re.MULTILINE)
        for name in names.split(", ")
    }
    present = {path.stem for path in directory.iterdir() if path.suffix == ".py" or path.is_dir()} - {"__init__", "__pycache__"}
    assert not listed - present
    assert not {name for name in present if not re.search(rf"\b{name}\b", text)}


@pytest.mark.parametrize("kind", [k for k in vars(forkpoint.errors).values() if inspect.isclass(k)], ids=str)
def test_every_error_is_told_with_its_remedy(kind):
    if not issubclass(kind, forkpoint.ForkpointError):
        return
    table = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    assert f"`{kind.__name__}`" in table or f"`fp.{kind.__name__}`" in table, f"docs/errors.md does not tell of {kind.__name__}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('<script src="https://cdn.example/x.js"></script>', 1),
        ("<script src=//cdn.example/x.js></script>", 1),
        ('<link href="https://fonts.example/css" rel="stylesheet">', 1),
        ("<style>@import url('https://fonts.example/css');</style>", 1),
        ("<style>a { background: url(http://example/x.png) }</style>", 1),
        ('<img alt="x" src="http://example/x.png">', 1),
        ('<a href="https://flink.apache.org">Flink</a><script src="../_static/x.js"></script>', 0),
        ('<link rel="stylesheet" href="_static/x.css"><link rel="canonical" href="https://example/">', 0),
    ],
)
def test_what_a_page_would_load_over_the_network_is_found(text, found, tmp_path):
    (tmp_path / "page.html").write_text(text)
    assert len(loaded_from_elsewhere(tmp_path)) == found
