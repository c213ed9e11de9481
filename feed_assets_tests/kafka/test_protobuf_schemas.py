"""Texts in Protobuf are read as protoc reads them, and hostile ones are refused with a reason.

The oracles are the descriptors that protoc made of published texts, and random texts whose descriptors are known.
"""

from base64 import b64encode
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import google.type
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from feed_assets.core.limits import REASON_BYTES
from feed_assets.kafka import protobuf_schemas
from feed_assets.kafka.poison import Poison
from feed_assets.kafka.protobuf_text import file_of
from feed_assets.kafka.schema_limits import NAMES, SCHEMA_BYTES, InvalidSchema
from feed_assets_tests.kafka import protobuf_texts
from feed_assets_tests.kafka.protobuf_orders import FLAT, Registry, decoded, head
from feed_assets_tests.support.each_case import each_case

PROTO3 = 'syntax = "proto3"; '
HOSTILE = {
    "no text": ("", "it has no message with the index 0"),
    "no Protobuf": ("{}", "line 1: expected a definition of proto2 or proto3, found '{'"),
    "binary": ("\0\1", r"line 1: expected a word of the language, found '\x00\x01'"),
    "an edition": ('edition = "2023"; message M {}', "expected a definition of proto2 or proto3, found 'edition'"),
    "another syntax": ('syntax = "proto4";', "line 1: expected proto2 or proto3, found '\"proto4\"'"),
    "no end": ("message M {\n int32", "line 2: expected optional, required or repeated, found 'int32'"),
    "no end of an option": ("option a = {{{", "line 1: expected the rest of a definition, found the end"),
    "no end of a comment": ("/*" * 9_000, "line 1: expected a word of the language"),
    "no label": ("message M { int32 a = 1; }", "line 1: expected optional, required or repeated, found 'int32'"),
    "no number": (FLAT % "int32 a;", "line 1: expected '=', found ';'"),
    "a long number": (FLAT % f"int32 a = {'9' * 5_000};", "line 1: expected a whole number"),
    "a large number": (FLAT % "int32 a = 4294967297;", "line 1: expected a number of 32 bits"),
    "a field number of 0": (FLAT % "int32 a = 0;", "TypeError: Couldn't build proto file into descriptor pool"),
    "a field number above all": (FLAT % "int32 a = 536870912;", "invalid field number (536870912)"),
    "two of one number": (FLAT % "int32 a = 1; int32 b = 1;", "duplicate field number (1)"),
    "two of one name": (FLAT % "int32 a = 1; int32 a = 2;", "duplicate field name (a)"),
    "an unknown type": (FLAT % "Nobody a = 1;", "couldn't resolve name 'Nobody'"),
    "an enum without 0": (PROTO3 + "enum E { A = 1; } message M { E e = 1; }", "the first value must be zero"),
    "an import of a file": ('import "../../etc/passwd"; message M {}', "Depends on file '../../etc/passwd'"),
    "a map of floats": (FLAT % "map<float, int32> a = 1;", "line 1: expected the type of a map's key, found 'float'"),
    "a map's entries": (FLAT % "map<int32, int32> a = 1; AEntry b = 2;", "M.b has the type of another field's entries"),
    "messages in messages": ("message A {" * 33, "33 messages one in another: expected at most 32"),
    "types in types": (
        PROTO3 + "".join(f"message M{n} {{ M{n + 1} a = 1; }}" for n in range(60)) + "message M60 {}",
        "51 nested messages: expected at most 50",
    ),
    "a long name": (FLAT % f"int32 {'a' * 1_025} = 1;", "1,025 characters of a name: expected at most 1,024"),
    "a long name of a message": (FLAT % "" + f"message {'a' * 1_025} {{}}", "1,025 characters of a name: expected at"),
    "a long package": (
        f"package {'a.' * 512}a; message A {{}}",
        "1,025 characters of a path: expected at most 1,024",
    ),
    "many full names": (
        f"package {'a.' * 511}a; message A {{{''.join(f'repeated A a{n} = {n};' for n in range(1, 200))}}}",
        "characters of full names: expected at most 67,108,864",
    ),
    "many full names of values": (
        f"package {'a.' * 511}a; message M {{}} enum E {{{''.join(f'V{n} = {n};' for n in range(66_000))}}}",
        "characters of full names: expected at most 67,108,864",
    ),
    "many names": (PROTO3 + "enum E {}" * (NAMES + 1), "10,001 named types: expected at most 10,000"),
    "many columns": (FLAT % "".join(f"int32 a{n} = {n};" for n in range(1, 1_602)), "1,601 fields: expected at most"),
    "a long text": (FLAT % f"// {'a' * SCHEMA_BYTES}\n", "bytes: expected at most 1,048,576"),
    "a record that is too long": (
        FLAT % "".join(f"N{n} a{n} = {n};" for n in range(1, 21))
        + "".join(
            f"message N{n} {{ {' '.join(f'int32 a{each}={each};' for each in range(1, 901))} }}" for n in range(1, 21)
        ),
        "characters as an Avro record: expected at most 900,000",
    ),
    "no entries of a map": ("descriptor", "AEntry is no entry of a map: expected a key and a value"),
    "a descriptor of an edition": ("edition", "it has an edition: expected proto2 or proto3"),
}


def binary(change: str) -> str:
    file = file_of(FLAT % "map<int32, int32> a = 1;", "any.proto")
    if change == "edition":
        file.syntax = "editions"
    else:
        del file.message_type[0].nested_type[0].field[1]
    return b64encode(file.SerializeToString()).decode()


class TextRegistry(Registry):
    """A registry with texts that are parsed when they are asked for, as by `Schemas`."""

    def __init__(self, *texts: str) -> None:
        super().__init__()
        self.texts = texts

    def protobuf(self, schema_id: int) -> Any:
        if schema_id not in self.schemas:
            try:
                self.schemas[schema_id] = protobuf_schemas.parsed(self.texts[schema_id - 1], {})
            except InvalidSchema as error:
                raise Poison.plain(str(error)) from error
        return self.schemas[schema_id]


@each_case("name", HOSTILE)
def test_a_hostile_schema_is_refused_with_its_reason(name):
    text, reason = HOSTILE[name]
    registry = TextRegistry(binary(text) if text in ("descriptor", "edition") else text)
    found = decoded(head((0,)), b"k", registry, keys="string").reason
    assert reason in found
    assert len(found.encode()) <= REASON_BYTES


def shape(message: DescriptorProto) -> Any:
    """Return what decides how a message is read."""
    fields = [
        (
            each.name,
            each.number,
            each.label,
            each.type,
            each.type_name,
            each.proto3_optional,
            each.HasField("oneof_index"),
        )
        for each in message.field
    ]
    enums = [(each.name, [(value.name, value.number) for value in each.value]) for each in message.enum_type]
    reserved = [(each.start, each.end) for each in message.reserved_range]
    nested = [shape(each) for each in message.nested_type]
    return message.name, message.options.map_entry, fields, enums, reserved, nested


def linked(files: list[FileDescriptorProto]) -> Any:
    """Return the shapes of files, with whole names of types as google's library finds them."""
    pool = protobuf_schemas.DescriptorPool()
    for each in files:
        pool.AddSerializedFile(each.SerializeToString())
    for each in files:
        pool.FindFileByName(each.name).CopyToProto(copy := FileDescriptorProto())
        enums = [(one.name, [(value.name, value.number) for value in one.value]) for one in copy.enum_type]
        yield (
            copy.name,
            copy.package,
            copy.syntax or "proto2",
            [*copy.dependency],
            enums,
            *map(shape, copy.message_type),
        )


def published() -> Iterator[tuple[str, str, FileDescriptorProto]]:
    """Yield the texts that google publishes in a package, with the descriptors that protoc made of them."""
    (folder,) = google.type.__path__
    site = Path(folder).parents[1]
    for path in sorted(site.glob("google/**/*.proto")):
        name = path.relative_to(site).as_posix()
        module = import_module(name.removesuffix(".proto").replace("/", ".").replace("-", "_") + "_pb2")
        if module.DESCRIPTOR.name == name:  # A few are copies of others.
            yield name, path.read_text(), FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def sorted_by_imports(files: dict[str, FileDescriptorProto]) -> list[FileDescriptorProto]:
    found = dict[str, FileDescriptorProto]()

    def add(name: str) -> None:
        file = files.get(name) or FileDescriptorProto.FromString(
            import_module(protobuf_schemas.BUILT_IN[name]).DESCRIPTOR.serialized_pb
        )
        for each in file.dependency:
            add(each)
        found.setdefault(name, file)

    for name in files:
        add(name)
    return [*found.values()]


def test_published_texts_have_the_descriptors_that_protoc_made():
    texts = [*published()]
    assert len(texts) > 50
    ours = sorted_by_imports({name: file_of(text, name) for name, text, _ in texts})
    theirs = sorted_by_imports({name: file for name, _, file in texts})
    assert [*linked(ours)] == [*linked(theirs)]


def test_numbers_may_be_octal_and_built_in_files_may_import_others():
    text = 'syntax = "proto3"; import "google/protobuf/api.proto"; message M { google.protobuf.Api a = 010; }'
    (field,) = protobuf_schemas.parsed(text, {}).message((0,)).fields
    assert (field.number, field.message_type.full_name) == (8, "google.protobuf.Api")


def test_files_of_confluents_registry_are_built_in():
    imports = 'import "confluent/meta.proto"; import "confluent/type/decimal.proto";'
    options = '[(confluent.field_meta) = { params: [ { key: "precision", value: "9" } ] }]'
    text = f'syntax = "proto3"; {imports} message M {{ confluent.type.Decimal price = 1 {options}; }}'
    (field,) = protobuf_schemas.parsed(text, {}).message((0,)).fields
    assert [each.name for each in field.message_type.fields] == ["value", "precision", "scale"]


def test_a_oneof_of_an_optional_field_has_the_name_that_protoc_gives_it():
    fields = "optional string id = 1; string _id = 2; optional string _x = 3; oneof X_id { string y = 4; }"
    oneofs = file_of(f'syntax = "proto3"; message M {{ {fields} }}', "any.proto").message_type[0].oneof_decl
    assert [each.name for each in oneofs] == ["X_id", "XX_id", "X_x"]


@each_case("seed", range(40))
def test_a_random_text_has_the_descriptor_of_which_it_was_written(seed):
    writer = protobuf_texts.Writer(Random(seed), "random.proto")  # noqa: S311
    text = writer.text()
    [found] = linked([file_of(text, "random.proto")])
    [expected] = linked([writer.file])
    assert found == expected, text
