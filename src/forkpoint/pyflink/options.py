"""`ConfigOptions`: keys of options with a default, which programs give to descriptors of tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ConfigOption:
    """An option by its key."""

    _key: str
    _default: Any = None

    def key(self) -> str:
        """The option's key."""
        return self._key

    def default_value(self) -> Any:
        """The value of an option that is not set; None if there is none."""
        return self._default

    def has_default_value(self) -> bool:
        """Whether there is a default."""
        return self._default is not None


class ConfigOptions:
    """Makes options: ``ConfigOptions.key("a").int_type().no_default_value()``."""

    def __init__(self, option_key: str) -> None:
        self._key = option_key

    @staticmethod
    def key(option_key: str) -> ConfigOptions:
        """An option with this key, of which the type follows."""
        return ConfigOptions(option_key)

    def default_value(self, value: Any) -> ConfigOption:
        """The option with a default."""
        return ConfigOption(self._key, value)

    def no_default_value(self) -> ConfigOption:
        """The option without a default."""
        return ConfigOption(self._key)

    def as_list(self) -> ConfigOptions:
        """The same option: values are texts."""
        return self

    def enum_type(self, enum_class: type) -> ConfigOptions:
        """The same option: values are texts."""
        return self

    boolean_type = int_type = long_type = float_type = double_type = string_type = duration_type = memory_type = map_type = (
        as_list
    )
