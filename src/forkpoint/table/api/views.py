"""Views of lists and dicts in accumulators, by PyFlink's names: an accumulator has the values, whatever their number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from forkpoint.table.data_types import DataType
from forkpoint.types import Row


class ListView(list[Any]):
    """A list in an accumulator, of type ``DataTypes.LIST_VIEW``."""

    def get(self) -> Iterable[Any]:
        """The elements."""
        return iter(self)

    def add(self, value: Any) -> None:
        """Add an element."""
        self.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        """Add elements."""
        self.extend(values)


class MapView(dict[Any, Any]):
    """A dict in an accumulator, of type ``DataTypes.MAP_VIEW``."""

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key."""
        self[key] = value

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        """Set the values of keys."""
        self.update(dict_value)

    def remove(self, key: Any) -> None:
        """Forget a key."""
        self.pop(key, None)

    def contains(self, key: Any) -> bool:
        """Whether there is a value of the key."""
        return key in self

    def is_empty(self) -> bool:
        """Whether there are no keys."""
        return not self


Views = Mapping[int, type[ListView] | type[MapView]]
"""By the place of a field in an accumulator."""


def views_of(accumulator: DataType) -> Views:
    """The views in an accumulator, which is a ROW."""
    kinds: dict[str, type[ListView] | type[MapView]] = {"LIST_VIEW": ListView, "MAP_VIEW": MapView}
    return {at: kinds[of.name] for at, of in enumerate(accumulator.field_types()) if of.name in kinds}


def with_views(accumulator: Any, views: Views) -> Any:
    """An accumulator whose lists and dicts at these places are views."""
    for at, view in views.items():
        if not isinstance(accumulator[at], view):
            accumulator[at] = view(accumulator[at] or ())
    return accumulator


def views_in(accumulator: Any) -> Views:
    """The views that an accumulator has."""
    parts = accumulator if isinstance(accumulator, tuple | list | Row) else ()
    return {at: type(each) for at, each in enumerate(parts) if isinstance(each, ListView | MapView)}


def without_views(accumulator: Any, views: Views) -> Any:
    """An accumulator with lists and dicts instead of views."""
    if not views:
        return accumulator
    parts = [
        (list(each) if isinstance(each, list) else dict(each)) if at in views else each for at, each in enumerate(accumulator)
    ]
    return type(accumulator)(*parts) if isinstance(accumulator, Row) else type(accumulator)(parts)
