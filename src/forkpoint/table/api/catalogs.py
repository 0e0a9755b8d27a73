"""Catalogues by PyFlink's names: where tables are, and the catalogues of an environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forkpoint.api.configuration import Configuration
from forkpoint.errors import ConfigError
from forkpoint.sql.errors import did_you_mean
from forkpoint.table.api.nodes import literal, quoted

if TYPE_CHECKING:
    from forkpoint.table.session import Session

_DEFAULT = ("default_catalog", "default_database")


@dataclass(frozen=True)
class ObjectPath:
    """A table of a database."""

    _database: str
    _name: str

    def get_database_name(self) -> str:
        """The database."""
        return self._database

    def get_object_name(self) -> str:
        """The table's name."""
        return self._name

    def get_full_name(self) -> str:
        """Both, with a point between them."""
        return f"{self._database}.{self._name}"


@dataclass(frozen=True)
class ObjectIdentifier:
    """A table of a database of a catalogue."""

    _catalog: str
    _database: str
    _name: str

    @staticmethod
    def of(catalog_name: str, database_name: str, object_name: str) -> ObjectIdentifier:
        """That of a table."""
        return ObjectIdentifier(catalog_name, database_name, object_name)

    @staticmethod
    def of_path(path: str) -> ObjectIdentifier:
        """That of a path, which may lack the default catalogue and database."""
        return ObjectIdentifier(*_DEFAULT[: 2 - path.count(".")], *path.split("."))

    def get_catalog_name(self) -> str:
        """The catalogue."""
        return self._catalog

    def get_database_name(self) -> str:
        """The database."""
        return self._database

    def get_object_name(self) -> str:
        """The table's name."""
        return self._name

    def to_object_path(self) -> ObjectPath:
        """The table without its catalogue."""
        return ObjectPath(self._database, self._name)

    def as_summary_string(self) -> str:
        """All parts, with points between them."""
        return f"{self._catalog}.{self._database}.{self._name}"

    __str__ = as_summary_string


@dataclass(frozen=True)
class CatalogDescriptor:
    """A catalogue to create, made with ``of``."""

    _name: str
    _options: Mapping[str, str]
    _comment: str | None = None

    @staticmethod
    def of(catalog_name: str, configuration: Configuration, comment: str | None = None) -> CatalogDescriptor:
        """A catalogue with the options of ``CREATE CATALOG``."""
        return CatalogDescriptor(catalog_name, {key: str(value) for key, value in configuration.values.items()}, comment)

    def get_catalog_name(self) -> str:
        """The catalogue's name."""
        return self._name

    def get_configuration(self) -> Configuration:
        """The options."""
        return Configuration.from_dict(self._options)

    def get_comment(self) -> str | None:
        """The comment, which has no effect."""
        return self._comment

    @property
    def ddl(self) -> str:
        """The statement that creates the catalogue."""
        options = ", ".join(f"{literal(key)} = {literal(value)}" for key, value in self._options.items())
        return f"CREATE CATALOG {quoted(self._name)} WITH ({options})"


class Catalog:
    """A catalogue of a table environment. ``get_catalog`` of the environment returns it."""

    def __init__(self, session: Session, name: str) -> None:
        session.load_catalogs()
        known = session.catalog.catalogs()
        if name not in known:
            raise ConfigError(f"there is no catalogue {name!r}; {did_you_mean(name, known)}")
        self._session, self._name = session, name

    def get_default_database(self) -> str:
        """The first database."""
        return self.list_databases()[0]

    def list_databases(self) -> list[str]:
        """The names of the databases."""
        return list(self._session.catalog.databases_of(self._name))

    def database_exists(self, database_name: str) -> bool:
        """Whether there is such a database."""
        return database_name in self.list_databases()

    def list_tables(self, database_name: str) -> list[str]:
        """The names of a database's tables and views."""
        return self._session.catalog.tables_of((self._name, database_name))

    def table_exists(self, table_path: ObjectPath) -> bool:
        """Whether a database has such a table or view."""
        return table_path.get_object_name() in self.list_tables(table_path.get_database_name())
