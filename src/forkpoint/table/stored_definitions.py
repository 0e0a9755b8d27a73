"""What a session's catalogue has of the stored ones: definitions are executed when they are read, and stored when they change."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from forkpoint.errors import ConfigError
from forkpoint.graph.secrets import is_secret
from forkpoint.sql.alterations import AlterTable, AlterView
from forkpoint.sql.catalog_statements import CreateSpace, DropSpace
from forkpoint.sql.errors import ENVIRONMENT, Text, public_value
from forkpoint.sql.function_statements import CreateFunction, DropFunction
from forkpoint.sql.parser import Statement, parse
from forkpoint.sql.statements import CreateTable, CreateView, Drop
from forkpoint.storage.base import open_storage
from forkpoint.table.answers import create_table, create_view, function_ddl
from forkpoint.table.catalog import Catalog, View
from forkpoint.table.function_catalog import imported
from forkpoint.table.stored_catalogs import Content, Definition, Version, newest_versions, read, write

if TYPE_CHECKING:
    from forkpoint.table.session import Session

log = logging.getLogger("forkpoint")
_KINDS = ("FUNCTION", "TABLE", "VIEW")  # in the order in which they may need each other


def refresh(session: Session) -> None:
    """Bring the session's catalogue up to date with what is stored."""
    catalog, stored = session.catalog, session.catalog.stored
    stored.loaded, storage = True, open_storage(catalog.states.root)
    for name, version in newest_versions(storage).items():
        known = stored.known.get(name)
        if known is None and name in catalog.databases:  # the program's own
            continue
        if known is None or known[0] != version:
            _load(session, name, read(storage, name, version))


def _load(session: Session, name: str, version: Version) -> None:
    catalog, (_, content) = session.catalog, version
    for path in [key.partition(" ")[2] for key in _definitions(catalog, name)]:
        for found in (catalog.tables, catalog.views, catalog.functions.own, catalog.functions.sources):
            found.pop(path, None)
    catalog.databases.pop(name, None)
    catalog.stored.known[name], catalog.stored.unusable[name] = version, set()
    if content.dropped:
        return
    catalog.databases[name] = list(content.databases)
    for kind in _KINDS:
        for key, definition in content.definitions.items():
            if key.startswith(kind):
                try:
                    _define(session, definition)
                except ConfigError as error:
                    catalog.stored.unusable[name].add(key)
                    log.warning("catalogue %r: %s cannot be used: %s", name, key, error)


def _define(session: Session, definition: Definition) -> None:
    catalog = session.catalog
    (statement,) = parse(Text(definition.sql, "catalogue"))
    current, catalog.current = catalog.current, definition.space
    try:
        match statement:
            case CreateTable():
                session.create_table(statement)
            case CreateView():  # its query is checked when it is used
                catalog.views[catalog.path(statement.name)] = View(statement, definition.space)
            case CreateFunction(name=function, of=of):
                session.create_function(function, imported(of), system=False)
                catalog.functions.sources[catalog.path(function).lower()] = of
    finally:
        catalog.current = current


def save(session: Session) -> None:
    """Store what the session has changed. Raises ConfigError if somebody else has changed the same; then the change is undone."""
    catalog, stored = session.catalog, session.catalog.stored
    if session.env.launch.inspect is not None:  # a check writes nothing
        return
    for name, (version, old) in list(stored.known.items()):
        try:
            new = _content(catalog, name, old)
            if new != old:
                stored.known[name] = write(open_storage(catalog.states.root), name, (version, old), new)
        except ConfigError:
            _load(session, name, (version, old))
            refresh(session)
            raise
        if stored.known[name][1] != new:  # has changes of others
            _load(session, name, stored.known[name])


def is_stored(catalog: Catalog, statement: Statement) -> bool:
    """Whether what a statement defines or drops is stored, so that other sessions have it without the statement."""
    match statement:
        case CreateTable(temporary=True) | CreateView(temporary=True) | CreateFunction(temporary=True):
            return False
        case CreateSpace(what="CATALOG", name=name) | DropSpace(what="CATALOG", name=name):
            return name in catalog.stored.known
        case CreateSpace(name=name) | DropSpace(name=name):
            return catalog.space(name)[0] in catalog.stored.known
        case CreateTable() | CreateView() | AlterTable() | AlterView() | Drop() | CreateFunction() | DropFunction():
            path = catalog.path(statement.name)
            return any(_is_in(path, name) for name in catalog.stored.known)
    return False


def _is_in(path: str, catalog: str) -> bool:
    return path.count(".") == 2 and path.lower().startswith(f"{catalog.lower()}.")


def _content(catalog: Catalog, name: str, old: Content) -> Content:
    if name not in catalog.databases:
        return Content(dropped=True)
    kept = {key: old.definitions[key] for key in catalog.stored.unusable.get(name, ())}
    for path, table in catalog.tables.items():
        if _is_in(path, name) and not table.temporary:
            _refuse_secrets(name, table)
    return Content(databases=list(catalog.databases[name]), definitions=kept | _definitions(catalog, name))


def _definitions(catalog: Catalog, name: str) -> dict[str, Definition]:
    """What a catalogue has, by kind and path, without what is temporary."""
    found = {}
    for path, table in catalog.tables.items():
        if _is_in(path, name) and not table.temporary:
            found[f"TABLE {path}"] = Definition(create_table(path, table), _space(path))
    for path, view in catalog.views.items():
        if _is_in(path, name) and isinstance(view, View) and not view.statement.temporary:
            found[f"VIEW {path}"] = Definition(create_view(path, view), view.space)
    for path, of in catalog.functions.sources.items():
        if _is_in(path, name):
            found[f"FUNCTION {path}"] = Definition(function_ddl(path, of), _space(path))
    return found


def _space(path: str) -> tuple[str, str]:
    catalog, database, _ = path.split(".")
    return catalog, database


def _refuse_secrets(catalog: str, table: CreateTable) -> None:
    for option, value in table.options.items():
        hidden = is_secret(option) or (not option.startswith("properties.") and public_value(option, value) != value)
        if hidden and not ENVIRONMENT.search(value):
            problem = (
                f"option {option!r} may be a secret, which catalogue {catalog!r} would store: write '${{env:NAME}}' for "
                "the environment variable NAME, or CREATE TEMPORARY TABLE"
            )
            raise table.source.error(table.offsets.get(option, table.offsets[""]), problem)
