"""Types: convert values to msgpack bytes, Arrow columns, and a description that outlives the program.

    type_of(annotation)         from int, tuple[int, str], a NamedTuple, dataclass, msgspec.Struct, Enum, ...
    Types.LONG(), ...           by Flink's names
    infer_type(values)          from values
    from_description(json)      from the description in a savepoint
    evolve(json, type)          how saved values become values of another type
    type.accept(value)          checks a value and makes it independent of the caller; independent(value): without a type

Stored values are not pickled.
"""

from typing import TYPE_CHECKING

from forkpoint.lazy import loader

if TYPE_CHECKING:
    from forkpoint.types.annotations import Instant, type_of
    from forkpoint.types.copying import independent, independent_all
    from forkpoint.types.description import from_description
    from forkpoint.types.evolution import Evolution, Misfit, Step, evolve, same_bytes, same_keys
    from forkpoint.types.factory import Types
    from forkpoint.types.infer import infer_type
    from forkpoint.types.information import Field, RenamedFrom, TypeInformation, TypeLike
    from forkpoint.types.kinds.row import Row, RowKind
    from forkpoint.types.shipping import before_loading, dumps

__getattr__ = loader(__name__)

__all__ = [
    "Evolution",
    "Field",
    "Instant",
    "Misfit",
    "RenamedFrom",
    "Row",
    "RowKind",
    "Step",
    "TypeInformation",
    "TypeLike",
    "Types",
    "before_loading",
    "dumps",
    "evolve",
    "from_description",
    "independent",
    "independent_all",
    "infer_type",
    "same_bytes",
    "same_keys",
    "type_of",
]
