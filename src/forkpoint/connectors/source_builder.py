"""The base class of source builders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Generic, Self

from forkpoint.connectors.formats.reading import OnParseError, check_on_parse_error
from forkpoint.errors import ConfigError
from forkpoint.types.variables import T


class SourceBuilder(Generic[T]):
    """A builder of a source with client properties, and with records that may be malformed."""

    _source: ClassVar[str]
    """The source's class, for messages."""

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}
        self._on_parse_error: OnParseError = "fail"

    def set_on_parse_error(self, on_parse_error: OnParseError) -> Self:
        """The handling of a record that cannot be deserialized: ``"fail"``; ``"skip"`` to log and skip it; or an
        ``OutputTag("…", DeadLetter)`` to send it to that side output, which ``get_side_output`` reads."""
        check_on_parse_error(self._source, on_parse_error)
        self._on_parse_error = on_parse_error
        return self

    def set_property(self, key: str, value: str) -> Self:
        """A property of the client, by its own or Flink's name, or of Flink's source."""
        self._properties[key] = str(value)
        return self

    def set_properties(self, props: Mapping[str, str]) -> Self:
        """Several properties."""
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def _take_number(self, properties: dict[str, str], name: str, default: int, what: str = "a number") -> int:
        """Remove a property of the source itself, and return its value."""
        given = properties.pop(name, None)
        try:
            return default if given is None else int(given)
        except ValueError:
            raise ConfigError(f"{self._source}: property {name} is {given!r}; give {what}") from None
