"""Which functions can run once with symbols in place of an element: those whose every effect is their result.

A symbol sees what is done with it, but not what else a function does. So the byte code has to consist of instructions that are
known to do nothing else, and the function runs with a copy of its globals and closure that has only what it may use: immutable
constants, other such functions, classes of records, and a few builtins. What the byte code of a newer Python has beyond that is
refused: too few functions are translated then, never a wrong one.
"""

from __future__ import annotations

import builtins
import dataclasses
import dis
import inspect
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from forkpoint.errors import ForkpointError

_KNOWN = frozenset(
    name
    for line in (
        "RESUME NOP CACHE PRECALL PUSH_NULL COPY SWAP POP_TOP EXTENDED_ARG COPY_FREE_VARS NOT_TAKEN",
        "LOAD_CONST LOAD_SMALL_INT LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_BORROW LOAD_FAST_LOAD_FAST",
        "LOAD_FAST_BORROW_LOAD_FAST_BORROW STORE_FAST STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST LOAD_GLOBAL LOAD_DEREF",
        "LOAD_ATTR LOAD_METHOD BINARY_OP BINARY_SUBSCR COMPARE_OP CONTAINS_OP IS_OP TO_BOOL",
        "UNARY_NOT UNARY_NEGATIVE UNARY_INVERT",
        "BUILD_TUPLE UNPACK_SEQUENCE CALL CALL_KW KW_NAMES RETURN_VALUE RETURN_CONST",
        "JUMP_FORWARD JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE",
        "POP_JUMP_IF_NOT_NONE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_NONE",
        "POP_JUMP_FORWARD_IF_NOT_NONE",
    )
    for name in line.split()
)
_ASKS_FOR_NONE = ("IS_OP", "POP_JUMP_IF_NO", "POP_JUMP_FORWARD_IF_NO")
_WORDS = {
    "STORE_GLOBAL": "assigns a global",
    "STORE_DEREF": "assigns a variable of an outer function",
    "STORE_ATTR": "sets an attribute",
    "STORE_SUBSCR": "assigns an item",
    "JUMP_BACKWARD": "has a loop",
    "FOR_ITER": "has a loop",
    "GET_ITER": "has a loop",
    "IMPORT_NAME": "imports a module",
    "RAISE_VARARGS": "raises an error",
    "MAKE_FUNCTION": "defines a function",
    "MAKE_CELL": "defines a function",
    "BUILD_LIST": "makes a list",
    "LIST_EXTEND": "makes a list",
    "BUILD_MAP": "makes a dict",
    "BUILD_CONST_KEY_MAP": "makes a dict",
    "FORMAT_VALUE": "formats a text",
    "FORMAT_SIMPLE": "formats a text",
    "BUILD_STRING": "formats a text",
    "IS_OP": "asks with `is` for something other than None",
    "PUSH_EXC_INFO": "handles errors",
    "RETURN_GENERATOR": "is a generator",
}
_YIELDS = frozenset({"RETURN_GENERATOR", "YIELD_VALUE"})
_ENDS_GENERATOR = ["CALL_INTRINSIC_1", "RERAISE"]  # how a generator of Python 3.12 and newer turns a StopIteration into an error
_FLAGS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_CONSTANTS = (int, float, bool, str, bytes, type(None))
_MISSING = object()


class NotAnExpression(ForkpointError):
    """Why a function is not computed over columns."""


def is_constant(value: Any) -> bool:
    """Whether a value is immutable through and through."""
    return type(value) in _CONSTANTS or (type(value) is tuple and all(map(is_constant, value)))


class Screened:
    """A function's copies, and what they rely on. ``calls``: the builtins that they may call, and by what; ``record``: what
    stands for a class of records. ``asks_for_none``: whether some part asks whether a value is None."""

    def __init__(self, calls: Mapping[Any, Callable[..., Any]], record: Callable[[type], Callable[..., Any]]) -> None:
        self._calls = calls
        self._record = record
        self._copies: dict[types.FunctionType, types.FunctionType] = {}
        self._reads: list[tuple[Callable[[], Any], Any]] = []
        self.asks_for_none = False
        self.literals: set[str] = set()  # the texts that the code itself contains

    @property
    def holds(self) -> bool:
        """Whether every name that the function reads from outside still has the value that it had."""
        return all(read() is value for read, value in self._reads)

    def constant(self, name: str, read: Callable[[], Any]) -> Any:
        """The value of a name from outside, which is only a constant."""
        value = read()
        if not is_constant(value):
            raise NotAnExpression(f"reads {name}, which can change")
        self._reads.append((read, value))
        return value

    def copy(self, function: types.FunctionType, *, yields: bool = False) -> types.FunctionType:
        """The function with screened globals, closure and defaults. ``yields``: whether it may be a generator."""
        if function in self._copies:
            return self._copies[function]
        own = function.__code__
        self._check(own, yields=yields)
        for constant in own.co_consts:
            several = constant if isinstance(constant, tuple | frozenset) else (constant,)
            self.literals.update(each for each in several if isinstance(each, str))
        code = own.replace(co_consts=tuple(Members(each) if type(each) is frozenset else each for each in own.co_consts))
        defaults, keywords = function.__defaults__, function.__kwdefaults__
        if not is_constant(defaults) or not all(map(is_constant, (keywords or {}).values())):
            raise NotAnExpression("has a default value that can change")
        names: dict[str, Any] = {"__builtins__": {}}
        cells = tuple(types.CellType() for _ in code.co_freevars)
        copied = types.FunctionType(code, names, function.__name__, defaults, cells)
        copied.__kwdefaults__ = keywords
        self._copies[function] = copied
        self._reads.append((lambda: function.__code__, own))
        self._reads += [(lambda: function.__defaults__, defaults), (lambda: function.__kwdefaults__, keywords)]
        for name, attributes in _global_names(code).items():
            names[name] = self._outer(name, _reader(function, name), attributes)
        for name, cell, outer in zip(code.co_freevars, cells, function.__closure__ or (), strict=True):
            cell.cell_contents = self._outer(name, _cell_reader(outer))
        return copied

    def _check(self, code: types.CodeType, *, yields: bool) -> None:
        generator = bool(code.co_flags & inspect.CO_GENERATOR)
        if code.co_flags & _FLAGS or (generator and not yields):
            raise NotAnExpression("is a generator" if generator else "takes any number of arguments, or is a coroutine")
        instructions = list(dis.get_instructions(code))
        if generator and [each.opname for each in instructions[-2:]] == _ENDS_GENERATOR:
            if any(entry.target != instructions[-2].offset for entry in dis.Bytecode(code).exception_entries):  # type: ignore[attr-defined]
                raise NotAnExpression("handles errors")
            instructions = instructions[:-2]
        elif code.co_exceptiontable:
            raise NotAnExpression("handles errors")
        before: dis.Instruction | None = None
        for each in instructions:
            name = each.opname
            is_none = before is not None and before.opname == "LOAD_CONST" and before.argval is None and not each.is_jump_target
            if (name not in _KNOWN and not (generator and name in _YIELDS)) or (name == "IS_OP" and not is_none):
                raise NotAnExpression(_WORDS.get(name, f"does more than an expression ({name})"))
            if name.startswith(("LOAD_ATTR", "LOAD_METHOD")) and str(each.argval).startswith("__"):
                raise NotAnExpression(f"reads {each.argval}")
            if name == "BINARY_OP" and each.argrepr.startswith("**"):
                raise NotAnExpression("computes a power")
            self.asks_for_none = self.asks_for_none or name.startswith(_ASKS_FOR_NONE)
            before = each

    def _outer(self, name: str, read: Callable[[], Any], attributes: Sequence[str] = ("",)) -> Any:
        """What stands for a name from outside. ``attributes``: what is read of it, "" for itself."""
        value = read()
        shown = f"{name}.{attributes[0]}" if attributes[0] else name
        if is_constant(value):
            return self.constant(name, read)
        self._reads.append((read, value))
        if isinstance(value, types.ModuleType) and "" not in attributes:
            parts = {each: self._outer(f"{name}.{each}", partial(getattr, value, each, _MISSING)) for each in attributes}
            return types.SimpleNamespace(**parts)
        if type(value) is frozenset and all(map(is_constant, value)):
            return Members(value)
        if isinstance(value, types.FunctionType):
            try:
                return self.copy(value)
            except NotAnExpression as why:
                raise NotAnExpression(f"calls {name}, which {why}") from None
        if isinstance(value, type) and value not in self._calls and is_plain_record(value):
            return self._record(value)
        found = self._calls.get(value) if isinstance(value, types.BuiltinFunctionType | type) else None
        if found is not None:
            return found
        if value is _MISSING:
            raise NotAnExpression(f"reads {name}, which has no value")
        raise NotAnExpression(f"calls {name}, which is not known" if callable(value) else f"reads {shown}, which can change")


def _reader(function: types.FunctionType, name: str) -> Callable[[], Any]:
    outer, inner = function.__globals__, function.__builtins__
    return lambda: outer.get(name, _MISSING) if name in outer else inner.get(name, _MISSING)


def _cell_reader(cell: types.CellType) -> Callable[[], Any]:
    def read() -> Any:
        try:
            return cell.cell_contents
        except ValueError:
            return _MISSING

    return read


def _global_names(code: types.CodeType) -> dict[str, list[str]]:
    """The globals that code reads, and what attributes of each, as in ``math.sin``; "" for itself."""
    found: dict[str, list[str]] = {}
    instructions = list(dis.get_instructions(code))
    for each, following in zip(instructions, [*instructions[1:], None], strict=True):
        if each.opname == "LOAD_GLOBAL":
            reads = following is not None and following.opname in ("LOAD_ATTR", "LOAD_METHOD")
            found.setdefault(str(each.argval), []).append(str(following.argval) if reads and following else "")
    return found


class Members:
    """A frozenset of constants, of which only the members count. A symbol has no hash, but equals a member or not."""

    __slots__ = ("_members",)

    def __init__(self, members: frozenset[Any]) -> None:
        self._members = sorted(members, key=repr)

    def __contains__(self, value: Any) -> bool:
        return any(value == member for member in self._members)

    def _refuse(self, *_: Any) -> Any:
        raise NotAnExpression("does more with a set than look into it")

    __bool__ = __eq__ = __ne__ = __hash__ = __len__ = __iter__ = _refuse


def reads_plainly(of: Any, names: Iterable[str]) -> bool:
    """Whether reading a field of an object, by name or index, does nothing else."""
    plain: tuple[type, ...] = (*_CONSTANTS, types.MemberDescriptorType, type(_Example.field))
    base = tuple if issubclass(of, tuple) else object
    return (
        of.__getattribute__ is base.__getattribute__
        and (base is object or (of.__getitem__ is tuple.__getitem__ and of.__iter__ is tuple.__iter__))
        and all(isinstance(inspect.getattr_static(of, name, 0), plain) for name in names)
    )


class _Example(NamedTuple):
    field: int


def is_plain_record(of: Any) -> bool:
    """Whether a call of a class does nothing but put its arguments into fields."""
    if issubclass(of, msgspec.Struct):
        defaults = [type(default).__name__ for default in of.__struct_defaults__]
        return not hasattr(of, "__post_init__") and "Factory" not in defaults and reads_plainly(of, of.__struct_fields__)
    if type(of) is not type:
        return False
    if issubclass(of, tuple) and hasattr(of, "_fields"):
        if not reads_plainly(of, of._fields):
            return False
        new = inspect.getattr_static(of, "__new__").__func__
        made = isinstance(new, types.FunctionType) and str(new.__globals__.get("__name__", "")).startswith("namedtuple_")
        return made and of.__init__ is object.__init__
    if not dataclasses.is_dataclass(of):
        return False
    owner: Any = next((base for base in of.__mro__ if "__dataclass_params__" in base.__dict__), None)
    plain = owner.__dataclass_params__.init and of.__init__ is owner.__dict__.get("__init__") and of.__new__ is object.__new__
    frozen = owner.__dataclass_params__.frozen
    fields, nothing = dataclasses.fields(of), type(dataclasses.MISSING)  # a class that came by value has another MISSING
    return bool(
        plain
        and not hasattr(of, "__post_init__")
        and (frozen or of.__setattr__ is object.__setattr__)
        and all(type(each.default_factory) is nothing and each.init for each in fields)
        and reads_plainly(of, [each.name for each in fields])
    )


def method_of(function: Any) -> tuple[types.FunctionType, tuple[Any, ...]]:
    """The Python function that a callable is, and what it is bound to."""
    if isinstance(function, types.FunctionType):
        return function, ()
    if isinstance(function, types.MethodType) and isinstance(function.__func__, types.FunctionType):
        return function.__func__, (function.__self__,)
    kind = builtins.type(function).__name__
    raise NotAnExpression(f"is not a function written in Python, but a {kind}")
