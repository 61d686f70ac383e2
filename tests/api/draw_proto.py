"""Messages drawn from protobuf descriptors: every field of every request that a service takes."""

import subprocess
import tempfile

from conftest import ROOT
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PROTOS = ["gpusched/v1/types.proto", "gpusched/v1/scheduler.proto", "gpusched/v1/services.proto",
          "gpusched/v1/node.proto", "scheduler/scheduler.proto"]
DEPTH_MAX = 6


def load():
    """A pool of all our descriptors."""
    with tempfile.NamedTemporaryFile() as out:
        done = subprocess.run(["protoc", f"--proto_path={ROOT / 'proto'}", "--include_imports", f"--descriptor_set_out={out.name}",
                               *PROTOS], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        described = descriptor_pb2.FileDescriptorSet.FromString(out.read())
    pool = descriptor_pool.DescriptorPool()
    for file in described.file:
        pool.Add(file)
    return pool


def message_class(pool, descriptor):
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)


class ProtoDraw:
    """Fills messages from a Draw."""

    RANGES = {}

    def __init__(self, draw):
        self.draw = draw

    def fill(self, message, field_permille=250, depth=0):
        """Sets some of the fields; which ones is drawn."""
        draw = self.draw
        for field in message.DESCRIPTOR.fields:
            if not draw.chance(field_permille):
                continue
            if field.message_type is not None and depth >= DEPTH_MAX:
                continue
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                self.fill_map(message, field, depth)
            elif field.label == field.LABEL_REPEATED:
                self.fill_list(message, field, field_permille, depth)
            elif field.message_type is not None:
                inner = getattr(message, field.name)
                inner.SetInParent()
                self.fill_one(inner, field_permille, depth + 1)
            else:
                setattr(message, field.name, self.value(field))

    def fill_one(self, message, field_permille, depth):
        name = message.DESCRIPTOR.full_name
        if name == "google.protobuf.Timestamp":
            message.seconds = self.draw.seconds()
            message.nanos = self.draw.random.choice([0, 1, 999_999_999, 1_000_000_000, -1, 2**31 - 1])
        elif name == "google.protobuf.Duration":
            message.seconds = self.draw.random.choice([0, 1, -1, 3600, 315_576_000_000, 315_576_000_001, 2**63 - 1, -2**63])
            message.nanos = self.draw.random.choice([0, 1, -1, 999_999_999, 2**31 - 1])
        else:
            self.fill(message, field_permille, depth)

    def fill_list(self, message, field, field_permille, depth):
        into = getattr(message, field.name)
        for _ in range(self.draw.count()):
            if field.message_type is not None:
                self.fill_one(into.add(), field_permille, depth + 1)
            else:
                into.append(self.value(field))

    def fill_map(self, message, field, depth):
        into = getattr(message, field.name)
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        for index in range(self.draw.count()):
            name = self.value(key)
            if isinstance(name, str) and index > 2:
                name += str(index)
            if value.message_type is not None:
                self.fill_one(into[name], 250, depth + 1)
            else:
                into[name] = self.value(value)

    def value(self, field):
        draw = self.draw
        kind = field.cpp_type
        if kind == field.CPPTYPE_INT32:
            return draw.integer(-2**31, 2**31 - 1)
        if kind == field.CPPTYPE_UINT32:
            return draw.integer(0, 2**32 - 1)
        if kind == field.CPPTYPE_INT64:
            return draw.integer(-2**63, 2**63 - 1)
        if kind == field.CPPTYPE_UINT64:
            return draw.integer(0, 2**64 - 1)
        if kind in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
            return draw.real() if draw.chance(900) else draw.random.choice([float("nan"), float("inf"), float("-inf")])
        if kind == field.CPPTYPE_BOOL:
            return draw.chance(500)
        if kind == field.CPPTYPE_ENUM:
            numbers = [value.number for value in field.enum_type.values]
            return draw.random.choice(numbers) if draw.chance(900) else draw.integer(-2**31, 2**31 - 1)
        text = draw.text(field.name)
        if field.type != field.TYPE_BYTES:
            return text
        return text.encode() if draw.chance(800) else bytes(draw.random.randrange(256) for _ in range(draw.random.randrange(40)))
