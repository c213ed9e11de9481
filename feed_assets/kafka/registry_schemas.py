"""The schemas of a registry by id. An id never changes its meaning, so each schema is requested once."""

import json
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from time import monotonic
from typing import Any, Literal, TypeVar
from uuid import UUID

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError

from feed_assets.core.errors import InvalidName, KafkaUnavailable, SchemaRefused
from feed_assets.core.message_words import excerpt
from feed_assets.core.secrets import masked
from feed_assets.core.topic_columns import record_schema
from feed_assets.kafka import avro, protobuf_schemas
from feed_assets.kafka.foreign_schemas import ForeignId, ForeignSchemas, subject_of_copy
from feed_assets.kafka.json_schemas import columns_of
from feed_assets.kafka.poison import Poison
from feed_assets.kafka.protobuf_schemas import ProtobufSchema, is_built_in
from feed_assets.kafka.schema_limits import REQUESTS, SCHEMA_BYTES, InvalidSchema, UnknownSchema, check_most

_SECONDS = 10
_REFUSED_SECONDS = 10.0
"""Seconds before an unusable schema is requested again: a registry's replica may lag behind."""

_NOT_FOUND = 40403
"""The registry's error code for an unknown schema. A wrong URL would give a plain 404 instead."""

_SUBJECT_REFUSED = frozenset({403, 409, 422})
"""HTTP statuses of a registry that refuses one subject: no right, an incompatible schema, and an invalid one."""

_NO_REFERENCE = frozenset({40401, 40402})
"""The registry's error codes for a missing subject and a missing version."""

_REFUSED_KEPT = 1000
"""The most unusable schemas that are remembered. Without a limit, messages with random ids would fill the memory."""

MOST_CHARACTERS = 900_000
"""The most characters of a schema that we register. A registry stores it in a message of up to 1 MB."""

_KNOWN_CHARACTERS = 4 << 20
"""The most characters of all schemas in memory. Parsed, they take about 25 times as many bytes."""

T = TypeVar("T")

_AVRO, _JSON, _PROTOBUF = "AVRO", "JSON", "PROTOBUF"
"""The registry's names of forms of schemas."""

_Id = int | ForeignId

_Place = tuple[str, int | Literal["latest"]]
"""Subject and version."""


_LARGER = 4
"""How much more memory a character of a Protobuf schema takes than one of Avro, with the readers of some messages."""


class RegistryFails(KafkaUnavailable):
    """An error for a registry that answers, but fails to register one schema."""


class Schemas:
    """Parsed schemas by id. An unusable schema is requested again only after some seconds, not for each message."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = SchemaRegistryClient({"url": url, "timeout": _SECONDS, "max.retries": 1})
        self._foreign = ForeignSchemas(url)
        self._known: dict[tuple[_Id, str], tuple[Any, int]] = {}
        """Schemas with their length, by id and form. The schema that was used last is at the end."""
        self._length = 0
        self.lookups = 0
        """The number of ids that were requested so far, and of schemas that were registered."""
        self._refused: dict[tuple[_Id, str], tuple[float, str]] = {}
        """Times and reasons of refused schemas, by id and by the form that was expected."""

    def close(self) -> None:
        """Close the connection."""
        self._client.close()
        self._foreign.close()

    def get(self, schema_id: int) -> avro.Schema:
        """Return the parsed schema of an id. Raise Poison if it is unusable, and KafkaUnavailable."""
        return self._kept(schema_id, lambda: self._parsed(self._client.get_schema(schema_id)), _AVRO)

    def protobuf(self, schema_id: int) -> ProtobufSchema:
        """Return the Protobuf schema of an id. Raise Poison if it is unusable, and KafkaUnavailable."""
        return self._kept(schema_id, lambda: self._parsed_protobuf(self._client.get_schema(schema_id)), _PROTOBUF)

    def json_columns(self, schema_id: int, depth: int) -> list[tuple[str, str]]:
        """Return the columns of a JSON Schema, by its id, which is requested each time.

        The fields of objects down to a depth are columns.

        Raise Poison if it is unusable, and KafkaUnavailable.
        """
        form = f"{_JSON} {depth}"  # A topic with a smaller depth may refuse the same schema.
        self._check_refused(schema_id, form)
        return self._fetched(schema_id, lambda: _columns_of(depth, self._client.get_schema(schema_id)), form)

    def copied(self, schema_id: ForeignId, form: str) -> int:
        """Register a copy of a schema with a foreign id, and return the copy's id.

        Raise Poison if it is unusable, and RegistryFails for any other failure: topics without such ids go on.
        """
        try:
            return self._kept(schema_id, lambda: self._copy(schema_id, form), form)
        except KafkaUnavailable as error:
            raise RegistryFails(str(error)) from error

    def _check_refused(self, schema_id: _Id, form: str) -> None:
        since, reason = self._refused.get((schema_id, form), (-_REFUSED_SECONDS, ""))
        if monotonic() < since + _REFUSED_SECONDS:
            raise _poison(schema_id, reason)

    def _kept(self, schema_id: _Id, read: Callable[[], tuple[T, int]], form: str) -> T:
        """Return a schema, and keep it. If the limit is exceeded, remove the least recently used schemas."""
        place = schema_id, form
        if place not in self._known:
            self._check_refused(schema_id, form)
            self._known[place] = self._fetched(schema_id, read, form)
            self._length += self._known[place][1]
            while self._length > _KNOWN_CHARACTERS and len(self._known) > 1:
                _, length = self._known.pop(next(iter(self._known)))
                self._length -= length
        elif next(reversed(self._known)) != place:
            self._known[place] = self._known.pop(place)
        return self._known[place][0]

    def check(self) -> None:
        """Raise KafkaUnavailable if no registry answers. The test request is for schema 0, which need not exist."""
        with suppress(Poison):
            self.get(0)

    def register(self, subject: str, schema: Mapping[str, Any]) -> int:
        """Register a schema unless it is registered already, and return its id.

        Raise SchemaRefused if only this subject is refused, for example because somebody has registered another schema
        under it; RegistryFails if it answers with an error of its own; else KafkaUnavailable.
        """
        return self._register(subject, Schema(json.dumps(schema), _AVRO))

    def _register(self, subject: str, schema: Schema) -> int:
        self.lookups += 1
        with self._translated(f"register {subject}"):
            try:
                return self._registered(subject, schema)
            except SchemaRegistryError as error:
                if error.http_status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
                    failed = self._unavailable(f"register {subject}", error)
                    raise RegistryFails(str(failed)) from error
                if error.http_status_code not in _SUBJECT_REFUSED:
                    raise
                raise SchemaRefused(
                    f"the registry refuses our schema under the subject {subject}: {excerpt(str(error))}. Delete "
                    "the other schemas of this subject, or allow the connector to write it. Then start it again."
                ) from error

    def _registered(self, subject: str, schema: Schema) -> int:
        """Register a schema. Repeat this after a conflict: another connector may have done it at the same moment."""
        try:
            return self._client.register_schema(subject, schema)
        except SchemaRegistryError as error:
            if error.http_status_code != HTTPStatus.CONFLICT:
                raise
        return self._client.register_schema(subject, schema)

    def key_fields(self, topic: str) -> tuple[str, ...]:
        """Return the fields of a topic's newest key schema. Raise InvalidName if it has none, and KafkaUnavailable."""
        subject = f"{topic}-key"
        try:
            with self._translated(f"look up {subject}"):
                schema = self._version((subject, "latest"))
                if schema.schema_type == _PROTOBUF:
                    return tuple(each.name for each in self._parsed_protobuf(schema)[0].only_message().fields)
                fields = avro.record_of(self._parsed(schema)[0])
        except InvalidSchema as error:
            raise InvalidName(f"its key schema, {subject} in the registry, cannot be read: {error}") from error
        finally:
            self._client.clear_caches()
        if fields is None:
            raise InvalidName(f"its key schema, {subject} in the registry, is no record: declare `key`")
        return tuple(each["name"] for each in fields["fields"])

    def _fetched(self, schema_id: _Id, read: Callable[[], T], form: str) -> T:
        self.lookups += 1
        try:
            with self._translated(f"look up schema {schema_id}"):
                return read()
        except UnknownSchema:
            reason = f"the registry has no schema {schema_id}"
        except InvalidSchema as error:
            reason = f"schema {schema_id} cannot be read: {error}"
        finally:
            self._client.clear_caches()  # Otherwise the client keeps the text of each schema.
        self._refused.pop((schema_id, form), None)
        if len(self._refused) >= _REFUSED_KEPT:
            del self._refused[next(iter(self._refused))]
        self._refused[schema_id, form] = monotonic(), reason
        raise _poison(schema_id, reason)

    def _copy(self, schema_id: ForeignId, form: str) -> tuple[int, int]:
        """Register a schema, after the versions before it. Of those, leave out what the registry takes for invalid."""
        *earlier, schema = self._foreign.versions(schema_id, form)
        for each in earlier:
            with suppress(InvalidSchema):
                self._registered_copy(each)
        copied = self._registered_copy(schema)
        self._foreign.note_copied(schema_id)
        return copied

    def _registered_copy(self, schema: Schema) -> tuple[int, int]:
        """Register a schema under a subject of its own. Raise InvalidSchema if the registry takes it for invalid."""
        check_most(len(schema.schema_str or ""), MOST_CHARACTERS, "characters")
        try:
            return self._register(subject := subject_of_copy(schema), schema), len(subject)
        except SchemaRefused as error:
            cause = error.__cause__
            if isinstance(cause, SchemaRegistryError) and cause.http_status_code != HTTPStatus.FORBIDDEN:
                raise InvalidSchema(f"the registry refuses a copy: {excerpt(str(cause))}") from error
            raise

    def _parsed(self, schema: Schema) -> tuple[avro.Schema, int]:
        """Return a schema, and the length of its text, including the texts of referenced schemas."""
        texts, named = self._referenced(schema, _AVRO), dict[str, Any]()
        for _, text in texts:
            avro.define(text, named)
        return avro.parsed(schema.schema_str or "", named), _length(schema, texts)

    def _parsed_protobuf(self, schema: Schema) -> tuple[ProtobufSchema, int]:
        texts = self._referenced(schema, _PROTOBUF)
        length = _LARGER * _length(schema, texts)
        return protobuf_schemas.parsed(schema.schema_str or "", dict(texts)), length

    def _referenced(self, schema: Schema, form: str) -> list[tuple[str, str]]:
        """Return the names and texts of referenced schemas, each before the schemas that refer to it.

        Raise InvalidSchema if the schema has another form.
        """
        if schema.schema_type != form:
            raise InvalidSchema(f"it is {schema.schema_type}, not {form}")
        texts = dict[_Place, tuple[str, str]]()
        self._add_references(schema, texts, {("", 0)})
        return [*texts.values()]

    def _add_references(self, schema: Schema, texts: dict[_Place, tuple[str, str]], requested: set[_Place]) -> None:
        """Add the names and texts of referenced schemas, each once, and before the schemas that refer to them."""
        for each in schema.references or ():
            place = each.subject or "", each.version or "latest"
            if place in requested or is_built_in(each.name or ""):
                continue
            requested.add(place)
            check_most(len(requested), REQUESTS, "schemas including referenced ones")
            referred = self._version(place)
            self._add_references(referred, texts, requested)
            texts[place] = each.name or "", referred.schema_str or ""
            length = sum(len(text) for _, text in texts.values())
            check_most(length, SCHEMA_BYTES, "characters of referenced schemas")

    def _version(self, place: _Place) -> Schema:
        try:
            return self._client.get_version(*place).schema
        except SchemaRegistryError as error:
            if error.error_code in _NO_REFERENCE:
                absent = f"version {place[1]} of {place[0]}, which the registry lacks"
                raise InvalidSchema(f"it refers to {absent}") from error
            raise

    @contextmanager
    def _translated(self, action: str) -> Generator[None]:
        try:
            yield
        except (InvalidSchema, UnknownSchema, SchemaRefused, KafkaUnavailable):
            raise
        except Exception as error:  # The HTTP library, and so the error, depends on the client's version.
            if isinstance(error, SchemaRegistryError) and error.error_code == _NOT_FOUND:
                raise UnknownSchema from error
            raise self._unavailable(action, error) from error

    def _unavailable(self, action: str, error: Exception) -> KafkaUnavailable:
        message = masked(f"{type(error).__name__}: {error}", self._url)
        return KafkaUnavailable(
            f"cannot {action} at {masked(self._url)}: {message}. Check the URL, and that the registry answers."
        )


def _poison(schema_id: _Id, reason: str) -> Poison:
    """Return the error for an unusable schema. Its public reason has no UUID, which may be bytes of a message."""
    return Poison(reason, reason.replace(str(schema_id), "of a UUID") if isinstance(schema_id, UUID) else reason)


def _length(schema: Schema, texts: Iterable[tuple[str, str]]) -> int:
    return len(schema.schema_str or "") + sum(len(text) for _, text in texts)


def _columns_of(depth: int, schema: Schema) -> list[tuple[str, str]]:
    """Return the columns of a JSON Schema. Raise InvalidSchema for another schema, or one that rows cannot have."""
    if schema.schema_type != _JSON:
        raise InvalidSchema(f"it is {schema.schema_type}, not JSON")
    try:
        columns = columns_of(schema.schema_str or "", depth)
        check_most(len(json.dumps(record_schema(columns))), MOST_CHARACTERS, "characters as an Avro record")
    except ValueError as error:
        raise InvalidSchema(str(error)) from error
    return columns
