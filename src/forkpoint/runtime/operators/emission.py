"""The outputs of functions and sources enter a stream.

An output keeps its value at the time of emission, and is of the declared type. Values that are mutable or need conversion are
*taken* one by one, as the function yields them. If all outputs of an operator are immutable, they are checked in bulk on first
access, in the name of the operator. The declared type decides. For undeclared values, and lists in place of tuples, the first
epoch with elements takes outputs one by one and decides. If a mutable output comes later, the epoch is repeated, and from then
on the operator takes all outputs one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import GeneratorType
from typing import Any

import numpy as np

from forkpoint.errors import ForkpointError, TypeNotSupported
from forkpoint.functions import OutputTag
from forkpoint.graph.job import Operator
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.operators.base import Epoch, Outputs, shorten
from forkpoint.types import Row, TypeInformation, independent
from forkpoint.types.copying import element_type

_ONE_OUTPUT = (str, bytes, bytearray, Mapping, Row)


class ChangingOutput(ForkpointError):
    """A mutable output was found too late; the epoch must be repeated, taking outputs one by one."""

    def __init__(self, uid: str) -> None:
        super().__init__(f"operator {uid!r} emits mutable values, which must be taken one by one")
        self.uid = uid


class Collector:
    """Takes the outputs of one operator on one subtask. ``one_by_one``: whether the current run takes single outputs.
    ``fed_back``: whether the operator reads its own outputs, so that it depends on their conversion.
    """

    def __init__(self, operator: Operator, *, fed_back: bool = False) -> None:
        self._fed_back = fed_back
        self._uid = operator.uid
        self._type = operator.output_type
        self._of = element_type(operator.output_type)
        self._tags: dict[str, TypeInformation] = {}
        self._declared_mutable = operator.output_type is not None and not self._of.immutable
        self._always = self._declared_mutable
        self.one_by_one = True
        self._many = False  # whether the function has any number of outputs for an element

    def begin(self, epoch: Epoch) -> None:
        """Start a run."""
        self._always = self._always or epoch.one_by_one
        self.one_by_one = self._always or (self.one_by_one and not epoch.trusted)

    # -- in the loop

    def take_each(self, results: Iterable[Any]) -> Iterable[Any]:
        """The results as they enter the stream, each taken as it is yielded."""
        return map(self.take, results) if self.one_by_one else results

    def into(self, values: list[Any]) -> Callable[[Iterable[Any]], None]:
        """A function that extends ``values`` by results, taking them."""
        self._many = True
        extend, take, several = values.extend, self.take, self.several
        return (lambda results: extend(map(take, several(results)))) if self.one_by_one else extend

    def several(self, results: Any) -> Iterable[Any]:
        """The returned outputs; TypeNotSupported for a single output (``return x`` by mistake for ``yield x``)."""
        cls = results.__class__
        if cls is list or cls is tuple or cls is GeneratorType:
            return results  # type: ignore[no-any-return]
        if isinstance(results, _ONE_OUTPUT) or hasattr(cls, "_fields") or not hasattr(cls, "__iter__"):
            raise TypeNotSupported(
                f"operator {self._uid!r}: the function returned {shorten(results)}, but it may have any number of outputs; yield "
                "each output, or return a list"
            )
        return results  # type: ignore[no-any-return]

    def take(self, value: Any) -> Any:
        """One output, or a pair of a tag and a side output, as it enters the stream."""
        if OutputTag.used and (tag := tag_of(value)) is not None:
            inner = value[1]
            taken = self._accepted(inner, self._of_tag(tag), tag.type_info)
            output = value if taken is inner else (tag, taken)
        else:
            inner = value
            taken = output = self._accepted(inner, self._of, self._type)
        if taken is not inner:
            self._always = True
        return output

    def _accepted(self, value: Any, of: TypeInformation, declared: TypeInformation | None) -> Any:
        try:
            return of.accept(value)
        except TypeNotSupported as error:
            text = f"operator {self._uid!r} emits {shorten(value)}"
            if declared is None:
                raise TypeNotSupported(f"{text}: {error}") from error
            raise TypeNotSupported(
                f"{text}, which is not valid for its output type {declared!r}: {error}. Return values of that type, or declare "
                f"another output_type{'; yield a single output instead of returning it' if self._many else ''}"
            ) from error

    def _all_accepted(self, values: list[Any], of: TypeInformation, declared: TypeInformation | None) -> list[Any]:
        try:
            return of.accept_all(values)
        except TypeNotSupported:
            for value in values:  # the error names the first invalid one
                self._accepted(value, of, declared)
            raise

    def _of_tag(self, tag: OutputTag) -> TypeInformation:
        of = self._tags.get(tag.tag_id)
        if of is None:
            of = self._tags[tag.tag_id] = element_type(tag.type_info)
        return of

    def take_all(self, values: list[Any], tag: OutputTag | None = None) -> list[Any]:
        """A run of a source's elements as they enter the stream, or a side output."""
        if tag is not None:
            return self._all_accepted(values, self._of_tag(tag), tag.type_info)
        return self._all_accepted(values, self._of, self._type)

    # -- after the loop

    def outputs(self, batch: Batch) -> Outputs:
        """The run's main output, with the side outputs split from it."""
        main, sides = self._split_by_tag(batch)
        if self.one_by_one:
            self.one_by_one = self._always or not batch.size
        else:
            main.pending = partial(self._checked, self._of, self._type)
            for tag, side in sides.items():
                side.pending = partial(self._checked, self._of_tag(tag), tag.type_info)
        return Outputs(
            main, {tag.tag_id: side for tag, side in sides.items()}, mutable=self._always and not self._declared_mutable
        )

    def _split_by_tag(self, batch: Batch) -> tuple[Batch, dict[OutputTag, Batch]]:
        tagged = OutputTag.used and tuple in set(map(type, batch.values))
        tags = list(map(tag_of, batch.values)) if tagged else []
        names = list(dict.fromkeys(tag for tag in tags if tag is not None))
        if not names:
            return batch, {}
        codes = np.array([-1 if tag is None else names.index(tag) for tag in tags])
        sides = {}
        for code, tag in enumerate(names):
            side = batch.take(np.flatnonzero(codes == code))
            sides[tag] = side.with_values([value[1] for value in side.values], tag.type_info)
        return batch.take(np.flatnonzero(codes == -1)), sides

    def _checked(self, of: TypeInformation, declared: TypeInformation | None, values: list[Any]) -> list[Any]:
        """The values as they enter the stream, if the loop took none.

        Raises:
            ChangingOutput: a value may have changed since it was yielded.
            TypeNotSupported: a value is not valid for the declared type.
        """
        accepted = self._all_accepted(values, of, declared)
        if accepted is not values and (self._fed_back or any(independent(value) is not value for value in values)):
            raise ChangingOutput(self._uid)
        return accepted


def tag_of(value: Any) -> OutputTag | None:
    """The tag of a side output ``(tag, value)``; None for any other output."""
    tagged = type(value) is tuple and len(value) == 2 and isinstance(value[0], OutputTag)
    return value[0] if tagged else None
