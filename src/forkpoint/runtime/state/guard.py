"""The guard in front of all state: what a function hands over becomes what the declared type says, or is refused.

What a state *keeps* of a value is the value itself where nothing can change it, else its bytes. Bytes belong to nobody:
everyone who reads gets a value of its own, and an epoch's end has nothing left to check. So a state gives the same within an
epoch as behind it, wherever epochs are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

from msgspec import Raw, msgpack

from forkpoint.errors import TypeNotSupported
from forkpoint.types import TypeInformation, Types
from forkpoint.types.wire import pack, shown

_REMEDY = "Update the state with values of its type, or declare another type"


class Encoded(bytes):
    """A value that could change, as bytes."""

    __slots__ = ()


class Guard:
    """Between the values that functions see and what one state keeps of them.

    ``where`` names the state in messages, ``key`` the key at hand in words (" of key 1"). ``encoded`` and ``decoded`` lead from
    what is kept to the bytes in the store and back.
    """

    def __init__(self, type: TypeInformation, where: str, key: Callable[[], str] = str, remedy: str = _REMEDY) -> None:
        self.type = type
        self._where, self._key, self._remedy = where, key, remedy
        accept, encode, decode = type.accept, type.encode, type.decode
        self.accept: Callable[[Any], Any] = accept
        refusal = self.refusal

        def keep_value(value: Any) -> Any:
            try:
                return accept(value)
            except Exception as error:
                raise refusal(value, error) from error

        def keep_bytes(value: Any) -> Any:
            try:
                made = accept(value)
                return value if made is value else Encoded(encode(made))
            except Exception as error:
                raise refusal(value, error) from error

        unchanging = type.immutable
        self.keep: Callable[[Any], Any] = keep_value if unchanging else keep_bytes
        self.give: Callable[[Any], Any] = (
            _same if unchanging else lambda kept: decode(kept) if kept.__class__ is Encoded else kept
        )
        self.encoded: Callable[[Any], bytes] = (
            encode if unchanging else lambda kept: kept if kept.__class__ is Encoded else encode(kept)
        )
        self.decoded: Callable[[bytes], Any] = decode if unchanging else Encoded

    def settled(self, value: Any) -> Any:
        """What the state would give back for a value: one of its own where the value could change."""
        return self.give(self.keep(value))

    def refusal(self, value: Any, error: BaseException) -> TypeNotSupported:
        """What to raise where a value is none of the type."""
        return TypeNotSupported(
            f"{self._where}: {shown(value, 200)}{self._key()} is no value of the state's type {self.type!r}: {error}. "
            f"{self._remedy}"
        )

    # -- many values, as one

    def keep_all(self, values: Iterable[Any]) -> list[Any]:
        """Each of the values as it is kept."""
        return list(map(self.keep, values))

    def give_all(self, kept: list[Any]) -> list[Any]:
        """The values, in a list of the reader's own."""
        return kept[:] if self.type.immutable else list(map(self.give, kept))

    def encoded_all(self, kept: list[Any]) -> bytes:
        """The bytes of a list of the values."""
        return self._list.encode(kept) if self.type.immutable else pack([Raw(self.encoded(k)) for k in kept])

    def decoded_all(self, data: bytes) -> list[Any]:
        """The values in such a list, as they are kept."""
        if self.type.immutable:
            return self._list.decode(data)  # type: ignore[no-any-return]
        return [Encoded(element) for element in _split(data)]

    @cached_property
    def _list(self) -> TypeInformation:
        return Types.LIST(self.type)


def _same(kept: Any) -> Any:
    return kept


_split = msgpack.Decoder(list[Raw]).decode
