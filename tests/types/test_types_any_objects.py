"""`Types.ANY()` carries objects of record classes, Enums, containers and numpy, and reads them without running code."""

from __future__ import annotations

import collections
import dataclasses
import enum
import sys
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import attrs
import msgspec
import numpy as np
import pydantic
import pytest
import type_strategies as ts
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import Ext

import forkpoint as fp
from example_counts import examples
from forkpoint.api.launch import Launch
from forkpoint.connectors.formats.jsonable import encode_lines
from forkpoint.errors import TypeNotSupported
from forkpoint.savepoint.inspect.query_limits import QueryLimits
from forkpoint.state_processor import SavepointReader
from forkpoint.testing import Eof, run_local
from forkpoint.types import Types, from_description, infer_type
from forkpoint.types.keys import key_form
from forkpoint.types.kinds.dynamic import MEMBER, RECORD
from forkpoint.types.kinds.objects import with_length
from forkpoint.types.readable import plain
from forkpoint.types.wire import pack

ANY = Types.ANY()
KEY = key_form(ANY)
WITHOUT_CLASSES = from_description(ANY.describe())


@dataclasses.dataclass
class Basket:
    name: str
    items: Any = dataclasses.field(default_factory=list)
    size: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        self.size = 100
        self.seen = True  # no field, made again


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: Any
    b: Any = None


class Named(NamedTuple):
    a: Any
    b: Any = None


class Built(msgspec.Struct, frozen=True, kw_only=True):
    a: Any
    b: Any = None


@attrs.frozen(cache_hash=True)
class Attrs:
    a: Any
    _b: Any = None


@attrs.define
class Converted:
    a: Any = attrs.field(converter=lambda value: [value])


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: Any
    b: Any = None
    _own: Any = pydantic.PrivateAttr(default=None)


class Color(enum.Enum):
    RED = "r"
    GREEN = 2
    ROUGE = "r"  # noqa: PIE796 - an alias


class Level(enum.IntEnum):
    LOW = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Outer:
    @dataclasses.dataclass(frozen=True)
    class Inner:
        a: Any


def model(a: Any, extra: Any) -> Model:
    made = Model(a=a, more=extra)
    made._own = extra
    return made


def changed(basket: Basket) -> Basket:
    basket.size = 5
    return basket


ENUMS = st.sampled_from([*Color, Level.LOW, *Rights, Rights.READ | Rights.WRITE])
NUMPY = st.sampled_from(
    [
        np.int8(3),
        np.uint64(2**64 - 1),
        np.float64(1.5),
        np.float32(0.1),
        np.longdouble(1.5),
        np.complex64(1 + 2j),
        np.bool_(True),
        np.str_("é"),
        np.str_(""),
        np.bytes_(b"a"),
        np.datetime64("2020-01-02"),
        np.timedelta64(3, "s"),
    ]
)
ARRAYS = st.sampled_from(
    [
        np.arange(6).reshape(2, 3),
        np.zeros((0, 3), np.float32),
        np.array(5),
        np.array(["a", "bcd"]),
        np.asfortranarray(np.ones((2, 3))),
        np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", ">f8")]),
        np.array(["2020-01-01"], "M8[D]"),
        np.array([True, False]),
    ]
)
COMPLEX = st.complex_numbers(allow_nan=False)
RANGES = st.builds(range, st.integers(), st.integers(), st.integers(1))
HASHABLE = st.recursive(
    ts._HASHABLE_DYNAMIC | ENUMS | NUMPY | COMPLEX | RANGES,
    lambda inner: (
        st.builds(Frozen, inner, inner)
        | st.builds(Named, inner, inner)
        | st.builds(lambda a, b: Built(a=a, b=b), inner, inner)
        | st.builds(Attrs, inner, inner)
        | st.builds(Outer.Inner, inner)
    ),
    max_leaves=4,
)
VALUES = st.recursive(
    ts.DYNAMIC | HASHABLE | ARRAYS | st.binary().map(bytearray),
    lambda inner: (
        st.builds(lambda items: changed(Basket("x", items)), inner)
        | st.builds(Converted, inner)
        | st.builds(model, inner, inner)
        | st.lists(inner, max_size=3)
        | st.builds(lambda values, n: collections.deque(values, n), st.lists(inner, max_size=3), st.none() | st.just(2))
        | st.lists(st.tuples(HASHABLE, inner), max_size=3).map(collections.OrderedDict)
        | st.dictionaries(HASHABLE, st.integers(), max_size=3).map(collections.Counter)
        | st.dictionaries(HASHABLE, inner, max_size=3).map(lambda items: collections.defaultdict(list, items))
        | st.dictionaries(HASHABLE, inner, max_size=3)
        | st.sets(HASHABLE, max_size=3)
    ),
    max_leaves=4,
)


def exact(value: Any) -> Any:
    """The value, so that only values of the same classes are equal."""
    cls = type(value)
    if isinstance(value, np.ndarray):
        return cls, str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, np.generic):
        return cls, str(value.dtype), value.tobytes()
    if isinstance(value, enum.Enum):
        return cls, value.name
    if isinstance(value, collections.OrderedDict):
        return cls, [(exact(key), exact(each)) for key, each in value.items()]
    if isinstance(value, dict):
        more = getattr(value, "default_factory", None)
        return (
            cls,
            more,
            sorted(((repr(exact(key)), exact(each)) for key, each in value.items()), key=lambda pair: pair[0]),
        )
    if isinstance(value, set | frozenset):
        return cls, sorted(repr(exact(each)) for each in value)
    if isinstance(value, list | tuple | collections.deque):
        return cls, getattr(value, "maxlen", None), [exact(each) for each in value]
    if isinstance(value, pydantic.BaseModel):
        private = value.__pydantic_private__
        return cls, exact(dict(value)), value.model_fields_set, exact(value.model_extra), exact(private)
    if attrs.has(cls):
        return cls, [exact(getattr(value, field.name)) for field in attrs.fields(cls)]
    if dataclasses.is_dataclass(value):
        return cls, [exact(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, msgspec.Struct):
        return cls, [exact(getattr(value, name)) for name in value.__struct_fields__]
    return ts.exact(value)


@examples(50)
@given(VALUES)
def test_values_come_back_exactly_with_their_classes(value: Any) -> None:
    data = ANY.encode(value)
    assert exact(ANY.decode(data)) == exact(value)
    assert ANY.encode(ANY.decode(data)) == data
    assert exact(ANY.accept(value)) == exact(value)
    assert exact(ANY.from_arrow(ANY.to_arrow([value]))[0]) == exact(value)


@examples(40)
@given(VALUES)
def test_without_the_classes_values_keep_their_bytes_and_have_a_readable_form(value: Any) -> None:
    data = ANY.encode(value)
    stand_in = WITHOUT_CLASSES.decode(data)
    assert WITHOUT_CLASSES.encode(stand_in) == data
    assert WITHOUT_CLASSES.encode(WITHOUT_CLASSES.accept(stand_in)) == data
    msgspec.json.encode(plain(stand_in))


@examples(40)
@given(HASHABLE)
def test_keys_have_one_form(value: Any) -> None:
    data = KEY.encode(value)
    assert KEY.encode(KEY.decode(data)) == KEY.encode(KEY.accept(value)) == data
    without = key_form(WITHOUT_CLASSES)
    assert without.encode(without.decode(data)) == data


def test_keys_that_were_plain_stay_plain() -> None:
    # Keys of earlier releases are saved so.
    assert KEY.encode(Named(1, "a")) == KEY.encode((1, "a"))
    assert KEY.encode(np.int64(5)) == KEY.encode(5)
    assert KEY.encode(Level.LOW) != KEY.encode(1)


class Keep(fp.KeyedProcessFunction):
    value = fp.ValueStateDescriptor("value", ANY)
    many = fp.ListStateDescriptor("many", ANY)
    by = fp.MapStateDescriptor("by", ANY, ANY)
    last = fp.ReducingStateDescriptor("last", lambda a, b: b, ANY)

    def process_element(self, value: Any, ctx: Any) -> Any:
        key = ctx.get_current_key()
        before = (self.value.value(), list(self.many.get()), dict(self.by.items()), self.last.get())
        if value[1] is not READ:
            self.value.update(value[1])
            self.many.add(value[1])
            self.by.put(key, value[1])
            self.last.add(value[1])
        yield key, before


READ = "read"


def job(env: Any, source: Any) -> Any:
    values = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "values").uid("values")
    return values.key_by(lambda pair: pair[0]).process(Keep()).uid("keep")


@examples(4)
@given(
    st.lists(st.tuples(HASHABLE, VALUES), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 3),
)
def test_values_go_through_shuffles_state_and_savepoints(
    tmp_path_factory: Any, pairs: list[Any], epochs: int, before: int, after: int
) -> None:
    root = tmp_path_factory.mktemp("root")
    keys = [key for key, _ in pairs]
    first = run_local(job, [*pairs, Eof(savepoint=True)], state_root=root, parallelism=before, epochs=epochs)
    read = [(key, READ) for key in keys]
    second = run_local(
        job,
        [*pairs, Eof(savepoint=True), *read],
        state_root=root,
        parallelism=after,
        restore=first.savepoint,
        epochs=epochs,
    )
    expected: dict[bytes, list[Any]] = {}
    for key, value in pairs:
        expected.setdefault(KEY.encode(key), []).append(value)
    assert len(second.output) == len(read)
    for key, (value, many, by, last) in second.output:
        kept = expected[KEY.encode(key)]
        assert [exact(each) for each in many] == [exact(each) for each in kept]
        assert exact(value) == exact(last) == exact(kept[-1])
        assert [exact(each) for each in by.values()] == [exact(kept[-1])]


@pytest.mark.parametrize("limits", [None, QueryLimits(60, 100, 1 << 20, 1 << 28, 1 << 28, 1)])
def test_sql_reads_them_as_json(tmp_path: Path, limits: QueryLimits | None) -> None:
    run = run_local(job, [(Named(1), Frozen(Color.RED, [np.int8(2)])), Eof(savepoint=True)], state_root=tmp_path)
    sql = "SELECT any_json(key) k, any_json(value) v, any_json(value)->>'a' a FROM keep.value"
    reader = SavepointReader.read(run.savepoint)
    found = reader.query(sql) if limits is None else reader.query_within(sql, limits)[0]
    assert found.to_pylist() == [{"k": "[1,null]", "v": '{"a":"RED","b":[2]}', "a": "RED"}]


def test_they_are_written_as_json() -> None:
    values = [
        np.arange(3),
        np.int8(1),
        np.float64(2.5),
        np.str_("a"),
        collections.deque([Frozen(1)]),
        Model(a=(np.float32(1),)),
    ]
    lines = [b"[0,1,2]", b"1", b"2.5", b'"a"', b'[{"a":1,"b":null}]', b'{"a":[1.0],"b":null}']
    assert encode_lines(values, None).splitlines() == lines


# -- what is not carried


class Plain:
    pass


class Extended(dict):  # type: ignore[type-arg]
    pass


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (Plain(), "Plain"),
        ([lambda: 1], "function"),
        (Extended(), "Extended"),
        (collections.defaultdict(lambda: 1), "factory"),
        (np.array([Plain()]), "array of object"),
        (Plain, "type"),
    ],
)
def test_what_has_no_typed_form_is_refused_with_a_remedy(value: Any, named: str) -> None:
    with pytest.raises(TypeNotSupported, match=named) as refused:
        ANY.encode(value)
    assert "execution.allow-pickle" in str(refused.value)


def test_classes_that_no_name_leads_to_are_refused() -> None:
    @dataclasses.dataclass
    class Local:
        a: int

    class Pair(NamedTuple):
        a: int

    with pytest.raises(TypeNotSupported, match=r"Local is not found by its name; define it at the top level"):
        ANY.encode(Local(1))
    assert ANY.decode(ANY.encode(Pair(1))) == (1,)  # as in earlier releases


def test_attributes_that_are_no_fields_are_not_lost() -> None:
    value = Outer.Inner(1)
    object.__setattr__(value, "more", 2)
    with pytest.raises(TypeNotSupported, match="more"):
        ANY.encode(value)


def test_a_source_takes_any_objects() -> None:
    assert infer_type([Plain()]) == ANY
    assert infer_type([Basket("a"), Frozen(1)]) == ANY
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.launch = Launch(options={"engine": "local"})
    names = env.from_collection([Plain(), bytearray(b"a"), 1]).map(lambda value: type(value).__name__)
    assert list(names.execute_and_collect()) == ["Plain", "bytearray", "int"]


# -- hostile values

NAMES = [
    ("os", "system"),
    ("subprocess", "Popen"),
    ("builtins", "eval"),
    ("builtins", "dict"),
    ("functools", "partial"),
    ("antigravity", "x"),
    ("this", "s"),
    ("os", "path.join"),
    (__name__, "Plain"),
    (__name__, "Keep"),
    (__name__, "Outer"),
    (__name__, "Basket.__init__"),
    (__name__, "Color.RED.__class__"),
]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_what_a_value_names_is_not_called(module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    for holder in ("os.system", "subprocess.Popen.__init__", "builtins.eval"):
        monkeypatch.setattr(holder, lambda *args, **more: called.append("called"))
    loaded = set(sys.modules)
    crafted = [Ext(MEMBER, pack((module, name, stored, "x"))) for stored in ("echo", 1)]
    for kind in ("dataclass", "namedtuple", "struct", "attrs", "pydantic", "other"):
        for names in (("args",), (), ("__class__", "__reduce__")):
            header = with_length(pack((kind, module, name, names)))
            crafted.append(Ext(RECORD, header + pack(["echo"] * len(names))))
    for each in crafted:
        with pytest.raises(TypeNotSupported):
            ANY.decode(pack(each))
        WITHOUT_CLASSES.decode(pack(each))
    assert not called
    assert set(sys.modules) == loaded


def test_fields_that_a_class_has_not_are_refused() -> None:
    header = with_length(pack(("dataclass", __name__, "Basket", ("name", "items", "size", "__class__"))))
    with pytest.raises(TypeNotSupported, match=r"no longer has.*__class__"):
        ANY.decode(pack(Ext(RECORD, header + pack(["a", "b", 1, "c"]))))


# -- classes that change


def saved(value: Any, monkeypatch: pytest.MonkeyPatch, now: Any) -> Any:
    """A value that is read once its class is another."""
    data = ANY.encode(value)
    if now is None:
        monkeypatch.delattr(sys.modules[__name__], type(value).__name__)
    else:
        monkeypatch.setattr(sys.modules[__name__], type(value).__name__, now)
    return ANY.decode(data)


@dataclasses.dataclass
class Version1:
    a: int
    b: str


@dataclasses.dataclass
class Version2:
    c: Annotated[str, fp.RenamedFrom("b")]
    a: int
    d: list[int] = dataclasses.field(default_factory=list)
    e: int | None = None


class Version3(msgspec.Struct):
    b: str
    a: int
    c: int = 3


class Lost(NamedTuple):
    a: int


class More(NamedTuple):
    a: int
    b: str
    c: int


class Renamed(enum.Enum):
    CRIMSON = "r"
    GREEN = 2


def test_a_class_may_change_as_that_of_typed_state(monkeypatch: pytest.MonkeyPatch) -> None:
    assert saved(Version1(1, "x"), monkeypatch, Version2) == Version2("x", 1, [], None)


def test_a_class_may_become_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    assert saved(Version1(1, "x"), monkeypatch, Version3) == Version3("x", 1, 3)


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (None, r"the class .*Version1, which the program does not have; keep it"),
        (Lost, "would be lost: b"),
        (More, "no field c, which was added without a default"),
        (Plain, "cannot be restored from saved fields"),
        (Color, "cannot be restored from saved fields"),
    ],
)
def test_what_does_not_fit_a_class_any_more_is_refused(now: Any, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeNotSupported, match=why):
        saved(Version1(1, "x"), monkeypatch, now)


def test_members_are_found_by_name_or_text(monkeypatch: pytest.MonkeyPatch) -> None:
    green, red = Color.GREEN, Color.RED
    assert saved(green, monkeypatch, Renamed) is Renamed.GREEN
    monkeypatch.undo()
    assert saved(red, monkeypatch, Renamed) is Renamed.CRIMSON
    monkeypatch.undo()
    with pytest.raises(TypeNotSupported, match=r"Color\.GREEN, but the Enum has no such member"):
        saved(green, monkeypatch, enum.Enum("Color", {"RED": "r"}))


# -- what this release has saved, every later one reads


@pytest.mark.parametrize(
    ("saved", "value"),
    [
        (
            "c76c0d0000002e94a964617461636c617373b6746573745f74797065735f616e795f6f626a65637473a646726f7a656e92a161a1629201c7350d000000"
            "2e94aa6e616d65647475706c65b6746573745f74797065735f616e795f6f626a65637473a54e616d656492a161a1629202c0",
            Frozen(1, Named(2)),
        ),
        ("c7240e94b6746573745f74797065735f616e795f6f626a65637473a5436f6c6f72a3524544a172", Color.RED),
        ("c7210e94b6746573745f74797065735f616e795f6f626a65637473a652696768747303c0", Rights.READ | Rights.WRITE),
        ("c706129202c4029101", collections.deque([1], 2)),
        ("c70c1592a3696e74c4059192a16101", collections.defaultdict(int, a=1)),
        ("d71792a37c6931c40103", np.int8(3)),
        ("c7131693c404a33c69349102c4080000000001000000", np.arange(2, dtype="<i4")),
        ("d61193000301", range(3)),
        ("c7131092cb3ff0000000000000cb4000000000000000", 1 + 2j),
        ("d40f61", bytearray(b"a")),
        ("c709139292a1620192a16102", collections.OrderedDict(b=1, a=2)),
        ("c705149192a16101", collections.Counter("a")),
        ("9201a161", (1, "a")),  # a NamedTuple of earlier releases
    ],
)
def test_saved_bytes_keep_their_meaning(saved: str, value: Any) -> None:
    assert exact(ANY.decode(bytes.fromhex(saved))) == exact(value)
    assert ANY.encode(value).hex() == saved
