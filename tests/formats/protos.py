"""Protobuf's descriptors of the tests, as protoc would write them."""

from __future__ import annotations

from typing import Any

from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

_IMPORTS = [timestamp_pb2, duration_pb2, struct_pb2, wrappers_pb2]


def _field(message: DescriptorProto, name: str, type: str, *, repeated: bool = False, **more: Any) -> FieldDescriptorProto:
    label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
    field = message.field.add(name=name, number=len(message.field) + 1, label=label, **more)
    if type.startswith("."):
        field.type = FieldDescriptorProto.TYPE_ENUM if type.endswith("Color") else FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = type
    else:
        field.type = getattr(FieldDescriptorProto, f"TYPE_{type.upper()}")
    return field


def _map(message: DescriptorProto, name: str, key: str, value: str) -> None:
    entry = message.nested_type.add(name="".join(part.title() for part in name.split("_")) + "Entry")
    entry.options.map_entry = True
    _field(entry, "key", key)
    _field(entry, "value", value)
    _field(message, name, f".shop.Order.{entry.name}", repeated=True)


def _shop() -> bytes:
    file = FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(module.DESCRIPTOR.name for module in _IMPORTS)
    color = file.enum_type.add(name="Color")
    for number, name in enumerate(["UNKNOWN", "RED", "BLUE"]):
        color.value.add(name=name, number=number)
    line = file.message_type.add(name="Line")
    _field(line, "item", "string")
    _field(line, "count", "sint32")
    order = file.message_type.add(name="Order")
    _field(order, "id", "int64")
    _field(order, "big", "uint64")
    _field(order, "item", "string")
    _field(order, "price", "double", proto3_optional=True, oneof_index=1)
    _field(order, "color", ".shop.Color")
    _field(order, "tags", "string", repeated=True)
    _map(order, "stock", "string", "int32")
    _field(order, "lines", ".shop.Line", repeated=True)
    _field(order, "at", ".google.protobuf.Timestamp")
    _field(order, "lasted", ".google.protobuf.Duration")
    _field(order, "card", "string", oneof_index=0)
    _field(order, "cash", "double", oneof_index=0)
    _field(order, "note", ".google.protobuf.StringValue")
    _field(order, "extra", ".google.protobuf.Struct")
    _map(order, "by_name", "uint32", ".shop.Line")
    _field(order, "colors", ".shop.Color", repeated=True)
    _field(order, "data", "bytes")
    order.oneof_decl.add(name="payment")
    order.oneof_decl.add(name="_price")
    nested = order.nested_type.add(name="Inner")
    _field(nested, "x", "int32")
    files = FileDescriptorSet()
    for module in _IMPORTS:
        module.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(file)
    return files.SerializeToString()


def _tree() -> bytes:
    file = FileDescriptorProto(name="tree.proto", package="tree", syntax="proto3")
    node = file.message_type.add(name="Node")
    _field(node, "id", "int32")
    _field(node, "children", ".tree.Node", repeated=True)
    return FileDescriptorSet(file=[file]).SerializeToString()


SHOP, TREE = _shop(), _tree()
