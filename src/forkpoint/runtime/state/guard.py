"""Guards of states: they check values from functions against the declared type, and convert or refuse them.

A state *keeps* a value itself if it is immutable, else its bytes. So every reader gets a value of its own, nothing is left
to check at the end of an epoch, and a state returns the same values within an epoch as after it, wherever epochs end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from forkpoint.decoding import msgpack_decoder
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
    """Converts between the values that functions see and what one state keeps of them.

    ``where`` names the state in messages, ``at`` the place in it (" of key 1").

    ``accept``: see `TypeInformation.accept`; ``encode``: the bytes of a value in a store key. ``keep``: what the state keeps of
    a value; ``give``: a value for one reader. ``encoded`` and ``decoded``: from what is kept to the bytes in the store and back.
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
                made = accept(value)
                return value if made is value else Encoded(encode(made))
            except Exception as error:
                raise refusal(value, error) from error

        def decode_value(kept: Any) -> Any:
            try:
                return decode(kept)
            except TypeNotSupported as error:
                raise TypeNotSupported(f"{where}{self.at()}: {error}") from error

        unchanging = type.immutable
        self.accept: Callable[[Any], Any] = accept_value
        self.encode: Callable[[Any], bytes] = encode_value
        self.keep: Callable[[Any], Any] = accept_value if unchanging else keep_bytes
        self.give: Callable[[Any], Any] = (
            (lambda kept: kept) if unchanging else lambda kept: decode_value(kept) if kept.__class__ is Encoded else kept
        )
        self.encoded: Callable[[Any], bytes] = (
            encode if unchanging else lambda kept: kept if kept.__class__ is Encoded else encode(kept)
        )
        self.decoded: Callable[[bytes], Any] = decode if unchanging else Encoded

    def _refusal(self, value: Any, error: BaseException) -> TypeNotSupported:
        return TypeNotSupported(
            f"{self.where}: {shown(value, 200)}{self.at()} is not valid for state type {self.type!r}: {error}. {self._remedy}"
        )

    # -- many values at once

    def keep_all(self, values: Iterable[Any]) -> list[Any]:
        """What the state keeps of each of the values."""
        return list(map(self.keep, values))

    def give_all(self, kept: list[Any]) -> list[Any]:
        """The values, in a new list."""
        return kept[:] if self.type.immutable else list(map(self.give, kept))

    def encoded_all(self, kept: list[Any]) -> bytes:
        """The bytes of a list of the values."""
        return self._list.encode(kept) if self.type.immutable else pack([Raw(self.encoded(k)) for k in kept])

    def decoded_all(self, data: bytes) -> list[Any]:
        """What the state keeps of the values in such a list."""
        if self.type.immutable:
            return self._list.decode(data)  # type: ignore[no-any-return]
        return [Encoded(element) for element in _split(data)]

    @cached_property
    def _list(self) -> TypeInformation:
        return Types.LIST(self.type)


_split = msgpack_decoder(list[Raw])
