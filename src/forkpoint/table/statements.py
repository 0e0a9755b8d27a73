"""Executes statements other than queries."""

from __future__ import annotations

from forkpoint.api.environment import StreamExecutionEnvironment
from forkpoint.errors import ConfigError
from forkpoint.sql.alterations import AlterTable, AlterView
from forkpoint.sql.catalog_statements import (
    CatalogStatement,
    CreateSpace,
    Describe,
    DescribeCatalog,
    DropSpace,
    Show,
    ShowCreate,
    ShowCurrent,
    Use,
)
from forkpoint.sql.errors import SqlError, Text, did_you_mean, public_value
from forkpoint.sql.function_statements import CreateFunction, DropFunction
from forkpoint.sql.parser import Statement
from forkpoint.sql.statements import CreateTable, CreateTableAs, CreateView, Drop, Explain, Insert, Query, Reset, Set
from forkpoint.table.answers import Answer, columns, names, table_ddl, text, view_ddl
from forkpoint.table.catalog import View
from forkpoint.table.explanation import advice, execution_plan, explained, insertion
from forkpoint.table.function_catalog import imported
from forkpoint.table.session import Session
from forkpoint.table.stored_definitions import save


def execute(session: Session, statement: Statement, source: Text) -> Answer | None:
    """Execute a statement that is not a query; returns the rows that it answers, if any. The operators of an INSERT are added
    to the session's job."""
    session.load_catalogs()
    answer = _executed(session, statement, source)
    save(session)
    return answer


def _executed(session: Session, statement: Statement, source: Text) -> Answer | None:
    match statement:
        case CreateTable():
            session.create_table(statement)
        case CreateTableAs():
            session.create_table_as(statement)
        case CreateView():
            session.create_view(statement)
        case AlterTable():
            session.alter_table(statement)
        case AlterView():
            session.alter_view(statement)
        case Drop():
            session.drop(statement, source)
        case Insert():
            session.insert(statement)
        case CreateFunction():
            _create_function(session, statement, source)
        case DropFunction(name=name, system=system):
            problem = session.drop_function(name, system=system)
            if problem is not None and not statement.if_exists:
                raise source.error(statement.at, problem)
        case Set(key=key, value=value, at=at):
            return _set(session, key, value, source, at)
        case Reset(key=key):
            session.reset(key)
        case Explain():
            return text(_explained(session, statement))
        case Query():
            raise AssertionError("queries have results")
        case _:
            return _in_catalog(session, statement, source)
    return None


def _create_function(session: Session, statement: CreateFunction, source: Text) -> None:
    try:
        function = imported(statement.of)
    except ConfigError as error:
        raise source.error(statement.of_at, str(error)) from error
    try:
        session.create_function(statement.name, function, system=statement.system, if_not_exists=statement.if_not_exists)
    except ConfigError as error:
        raise error if isinstance(error, SqlError) else source.error(statement.at, str(error)) from error
    if not (statement.temporary or statement.system):
        session.catalog.functions.sources[session.catalog.path(statement.name).lower()] = statement.of


def _set(session: Session, key: str | None, value: str | None, source: Text, at: int) -> Answer | None:
    if key is not None and value is not None:
        session.set(key, value)
        return None
    settings = session.settings
    if key is not None and key not in settings:
        raise source.error(at, f"{key!r} is not set; SET {key!r} = '…' sets it")
    rows = [(each, public_value(each, settings[each])) for each in sorted(settings if key is None else [key])]
    return Answer(("key", "value"), rows)


def _explained(session: Session, statement: Explain) -> str:
    of, table = statement.of, None
    if isinstance(of, Query):
        plan = session.plan(of)
        shown = explained(plan, ttl_ms=session.ttl_ms)
    else:
        table, plan = session.plan_of_insert(of)
        shown = insertion(table, plan, session.ttl_ms)
    if "PLAN_ADVICE" in statement.details:
        shown += f"\n\n{advice(plan, session.ttl_ms)}"
    if "JSON_EXECUTION_PLAN" in statement.details:
        edges = session.on(StreamExecutionEnvironment(session.env.options)).stream(plan).edges
        shown += f"\n\n{execution_plan(edges, table)}"
    return shown


def _in_catalog(session: Session, statement: CatalogStatement, source: Text) -> Answer | None:
    catalog = session.catalog
    match statement:
        case Show():
            return _show(session, statement, source)
        case ShowCurrent(what=what):
            return Answer((f"current {what.lower()} name",), [(catalog.current[what == "DATABASE"],)])
        case ShowCreate(what=what, name=name, at=at):
            path = catalog.path(name)
            table, view = catalog.table(path), catalog.views.get(path)
            if what == "TABLE" and table is not None:
                return table_ddl(path, table)
            if what == "VIEW" and isinstance(view, View):
                return view_ddl(path, view)
            known = catalog.tables if what == "TABLE" else catalog.views
            raise source.error(at, f"there is no {what.lower()} {path!r} with a CREATE statement; {did_you_mean(path, known)}")
        case Describe(name=name, at=at):
            return columns(session.described(name, at, source), title="name")
        case DescribeCatalog(name=name, at=at):
            if name not in catalog.catalogs():
                raise source.error(at, f"there is no catalogue {name!r}; {did_you_mean(name, catalog.catalogs())}")
            return Answer(("info name", "info value"), [("name", name), ("type", catalog.type_of(name)), ("comment", "")])
        case Use() | CreateSpace() | DropSpace():
            problem = catalog.change_spaces(statement)
            if problem is not None:
                raise source.error(statement.at, problem)
    return None


def _show(session: Session, statement: Show, source: Text) -> Answer:
    catalog = session.catalog
    match statement.what:
        case "CATALOGS":
            return names("catalog", catalog.catalogs(), statement)
        case "USER FUNCTIONS":
            return names("function", catalog.functions.names(), statement)
        case "FUNCTIONS":
            from forkpoint.sql.binding.expressions import function_names  # loads sqlglot's expressions

            return names("function", sorted({*function_names(), *catalog.functions.names()}), statement)
        case "COLUMNS":
            found = session.described(statement.of or "", statement.at, source)
            return columns(found, title="field name", statement=statement)
        case "DATABASES":
            of = statement.of or catalog.current[0]
            if of not in catalog.catalogs():
                raise source.error(statement.at, f"there is no catalogue {of!r}; {did_you_mean(of, catalog.catalogs())}")
            return names("database", sorted(catalog.databases_of(of)), statement)
    space = catalog.current if statement.of is None else catalog.space(statement.of)
    problem = catalog.missing_database(space)
    if problem is not None:
        raise source.error(statement.at, problem)
    views = {*catalog.views, *catalog.streams}
    found_names = catalog.tables_of(space)
    if statement.what == "VIEWS":
        found_names = [name for name in found_names if catalog.path(name, space) in views]
    return names(statement.what[:-1].lower(), found_names, statement)
