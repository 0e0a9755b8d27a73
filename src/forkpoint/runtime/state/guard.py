"""Guards check values from functions against the declared type of a state, and convert or refuse them.

A state *keeps* an immutable value itself, and the bytes of a mutable value. So every reader gets a separate value, the end of an
epoch needs no checks, and a state returns the same values within an epoch as after it, wherever epochs end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from forkpoint.decoders import msgpack_decoder
from forkpoint.errors import TypeNotSupported
from forkpoint.types import TypeInformation, Types
from forkpoint.types.wire import pack, shown

if TYPE_CHECKING:
    from forkpoint.runtime.state.ttl import Expiry

_REMEDY = "Update the state with values of its type, or declare another type"


class Encoded(bytes):
    """A mutable value, as bytes."""

    __slots__ = ()


class Guard:
    """Converts between values for functions and their kept form in one state.

    ``where`` names the state in messages, and ``at`` the entry (" of key 1").

    ``accept``: see `TypeInformation.accept`; ``encode``: the bytes of a value in a store key. ``keep``: from a value to its kept
    form; ``give``: a value for one reader. ``encoded`` and ``decoded``: from the kept form to the bytes in the store and back.
    """

    expiry: Expiry | None = None

    def __init__(self, type: TypeInformation, where: str, at: Callable[[], str] = str, remedy: str = _REMEDY) -> None:
        self.type, self.where, self.at, self._remedy = type, where, at, remedy
        accept, encode, decode, refusal = type.accept, type.encode, type.decode, self._refusal

        def accept_value(value: Any) -> Any:
            try:
                return accept(value)
            except Exception as error:
                raise refusal(value, error) from error

        def encode_value(value: Any) -> bytes:
            try:
                return encode(accept(value))
            except Exception as error:
                raise refusal(value, error) from error

        def keep_bytes(value: Any) -> Any:
            try:
                accepted = accept(value)
                return value if accepted is value else Encoded(encode(accepted))
            except Exception as error:
                raise refusal(value, error) from error

        def decode_value(kept: Any) -> Any:
            try:
                return decode(kept)
            except TypeNotSupported as error:
                raise TypeNotSupported(f"{where}{self.at()}: {error}") from error

        self.accept: Callable[[Any], Any] = accept_value
        self.encode: Callable[[Any], bytes] = encode_value
        self.keep: Callable[[Any], Any]
        self.give: Callable[[Any], Any]
        self.encoded: Callable[[Any], bytes]
        self.decoded: Callable[[bytes], Any]
        if type.immutable:
            self.keep, self.give, self.encoded, self.decoded = accept_value, lambda kept: kept, encode, decode
        else:
            self.keep, self.decoded = keep_bytes, Encoded
            self.give = lambda kept: decode_value(kept) if kept.__class__ is Encoded else kept
            self.encoded = lambda kept: kept if kept.__class__ is Encoded else encode(kept)

    def _refusal(self, value: Any, error: BaseException) -> TypeNotSupported:
        return TypeNotSupported(
            f"{self.where}: {shown(value, 200)}{self.at()} is not valid for state type {self.type!r}: {error}. {self._remedy}"
        )

    # -- many values at once

    def keep_all(self, values: Iterable[Any]) -> list[Any]:
        """The values in their kept form."""
        return list(map(self.keep, values))

    def give_all(self, kept: list[Any]) -> list[Any]:
        """The values, in a new list."""
        return kept[:] if self.type.immutable else list(map(self.give, kept))

    def encoded_all(self, kept: list[Any]) -> bytes:
        """The bytes of a list of the values."""
        return self._list.encode(kept) if self.type.immutable else pack([Raw(self.encoded(k)) for k in kept])

    def decoded_all(self, data: bytes) -> list[Any]:
        """The kept form of the values of an encoded list."""
        if self.type.immutable:
            return self._list.decode(data)  # type: ignore[no-any-return]
        return [Encoded(element) for element in _split(data)]

    @cached_property
    def _list(self) -> TypeInformation:
        return Types.LIST(self.type)


_split = msgpack_decoder(list[Raw])
