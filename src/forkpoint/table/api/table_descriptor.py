"""TableDescriptor: a table with its connector, by PyFlink's names. It becomes a CREATE TABLE statement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from forkpoint.errors import ConfigError
from forkpoint.relational.types import Schema as Columns
from forkpoint.sql.errors import public_value
from forkpoint.table.api.nodes import literal, quoted
from forkpoint.table.data_types import data_type_of
from forkpoint.table.schema import Schema


@dataclass(frozen=True)
class FormatDescriptor:
    """A format of messages or files with its options, created with ``for_format``."""

    _name: str
    _options: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def for_format(format: str) -> FormatDescriptor.Builder:  # noqa: A002  # as in PyFlink
        """A builder for a format, such as ``"json"``."""
        return FormatDescriptor.Builder(FormatDescriptor(format))

    def get_format(self) -> str:
        """The format's name."""
        return self._name

    def get_options(self) -> dict[str, str]:
        """The format's options."""
        return dict(self._options)

    def __str__(self) -> str:
        shown = ", ".join(f"{key}={value}" for key, value in self._options.items())
        return f"{self._name}[{{{shown}}}]"

    class Builder:
        """Builds a format. The methods return the builder."""

        def __init__(self, descriptor: FormatDescriptor) -> None:
            self._descriptor = descriptor

        def option(self, key: object, value: object) -> FormatDescriptor.Builder:
            """Set an option of the format."""
            options = {**self._descriptor._options, _key(key): _text(value)}
            self._descriptor = replace(self._descriptor, _options=options)
            return self

        def build(self) -> FormatDescriptor:
            """The format."""
            return self._descriptor


@dataclass(frozen=True)
class TableDescriptor:
    """A table with its connector and options, created with ``for_connector``."""

    _options: Mapping[str, str]
    _schema: Schema | None = None
    _partitions: tuple[str, ...] = ()
    _comment: str | None = None

    @staticmethod
    def for_connector(connector: str) -> TableDescriptor.Builder:
        """A builder for a table of a connector, such as ``"kafka"``."""
        return TableDescriptor.Builder(TableDescriptor({"connector": connector}))

    def to_builder(self) -> TableDescriptor.Builder:
        """A builder that begins with this descriptor."""
        return TableDescriptor.Builder(self)

    def get_schema(self) -> Schema | None:
        """The columns; None if they are not declared."""
        return self._schema

    def get_options(self) -> dict[str, str]:
        """The options, with the connector's name."""
        return dict(self._options)

    def get_partition_keys(self) -> list[str]:
        """The columns by which files are partitioned."""
        return list(self._partitions)

    def get_comment(self) -> str | None:
        """The comment."""
        return self._comment

    def __str__(self) -> str:
        shown = {key: public_value(key, value) for key, value in sorted(self._options.items())}
        return f"{'' if self._schema is None else self._schema}\n{self._clauses(shown)}"

    def with_columns(self, fields: Columns) -> TableDescriptor:
        """The table, which has the columns of what is written into it unless it declares its own."""
        if self._schema is not None:
            return self
        schema = Schema.new_builder().from_fields([f.name for f in fields], [data_type_of(f.type) for f in fields]).build()
        return replace(self, _schema=schema)

    def ddl(self, what: str) -> str:
        """The statement that creates the table. ``what``: the words after CREATE, up to the path."""
        if self._schema is None:
            raise ConfigError(f"{what} has no columns; give the descriptor a schema")
        return f"CREATE {what} (\n  {self._schema.ddl()}\n)\n{self._clauses(self._options)}"

    def _clauses(self, options: Mapping[str, str]) -> str:
        comment = "" if self._comment is None else f"COMMENT {literal(self._comment)}\n"
        partitions = f"PARTITIONED BY ({', '.join(map(quoted, self._partitions))})\n" if self._partitions else ""
        listed = ",\n".join(f"  {literal(key)} = {literal(value)}" for key, value in options.items())
        return f"{comment}{partitions}WITH (\n{listed}\n)"

    class Builder:
        """Builds a table. The methods return the builder."""

        def __init__(self, descriptor: TableDescriptor) -> None:
            self._descriptor = descriptor

        def schema(self, schema: Schema) -> TableDescriptor.Builder:
            """The columns."""
            self._descriptor = replace(self._descriptor, _schema=schema)
            return self

        def option(self, key: object, value: object) -> TableDescriptor.Builder:
            """Set an option of the connector."""
            options = {**self._descriptor._options, _key(key): _text(value)}
            self._descriptor = replace(self._descriptor, _options=options)
            return self

        def format(
            self,
            format: str | FormatDescriptor,  # noqa: A002  # as in PyFlink
            format_option: object = "format",
        ) -> TableDescriptor.Builder:
            """The format of messages or files. ``format_option``: ``"key.format"`` for that of keys."""
            described = FormatDescriptor(format) if isinstance(format, str) else format
            option = _key(format_option)
            prefix = option.removesuffix("format") + described._name
            for key, value in described._options.items():
                self.option(f"{prefix}.{key}", value)
            return self.option(option, described._name)

        def partitioned_by(self, *partition_keys: str) -> TableDescriptor.Builder:
            """The columns by which files are partitioned."""
            self._descriptor = replace(self._descriptor, _partitions=partition_keys)
            return self

        def comment(self, comment: str) -> TableDescriptor.Builder:
            """A comment, which has no effect."""
            self._descriptor = replace(self._descriptor, _comment=comment)
            return self

        def build(self) -> TableDescriptor:
            """The table."""
            return self._descriptor


def _key(option: object) -> str:
    """The key of an option, which PyFlink's programs also give as a ConfigOption."""
    key = option if isinstance(option, str) else getattr(option, "key", None)
    found = key() if callable(key) else key
    if not isinstance(found, str):
        raise ConfigError(f"an option's key is a text, not {option!r}")
    return found


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
