"""The schemas of a registry by their ids, which never change their meaning, so each is asked for once."""

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError

from feed_assets.core.errors import KafkaUnavailable
from feed_assets.core.secrets import shown
from feed_assets.kafka import avro
from feed_assets.kafka.avro import InvalidSchema

_SECONDS = 10
_NOT_FOUND = 40403
"""The registry's own code: a URL that is wrong has a 404, too."""


class Poison(Exception):
    """Why a message cannot be a record."""


class _Unknown(Exception):
    """The registry has no such schema."""


class Schemas:
    """Schemas by id, parsed. What the registry does not know stays unknown for as long as this lives."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = SchemaRegistryClient({"url": url, "timeout": _SECONDS, "max.retries": 1})
        self._known: dict[int, avro.Schema | Poison] = {}

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def get(self, schema_id: int) -> avro.Schema:
        """The parsed schema of an id. Raises Poison if there is none, and KafkaUnavailable."""
        if schema_id not in self._known:
            self._known[schema_id] = self._asked(schema_id)
        found = self._known[schema_id]
        if isinstance(found, Poison):
            raise found
        return found

    def register(self, subject: str, schema: Mapping[str, Any]) -> int:
        """The id of a schema, which is registered unless it is. Raises KafkaUnavailable."""
        with self._translated(f"register {subject}"):
            return self._client.register_schema(subject, Schema(json.dumps(schema), "AVRO"))

    def _asked(self, schema_id: int) -> avro.Schema | Poison:
        try:
            with self._translated(f"look up schema {schema_id}"):
                return self._parsed(schema_id, self._client.get_schema(schema_id))
        except _Unknown:
            return Poison(f"the registry knows no schema {schema_id}")
        except InvalidSchema as error:
            return Poison(f"schema {schema_id} is none that can be read: {error}")

    def _parsed(self, schema_id: int, found: Schema) -> avro.Schema | Poison:
        if found.schema_type != "AVRO":
            return Poison(f"schema {schema_id} is {found.schema_type}: expected AVRO")
        named = dict[str, Any]()
        self._add_references(found, named)
        return avro.parsed(found.schema_str or "", named)

    def _add_references(self, schema: Schema, named: dict[str, Any]) -> None:
        """Parse what a schema refers to, before itself."""
        for each in schema.references or ():
            found = self._client.get_version(each.subject or "", each.version or "latest").schema
            self._add_references(found, named)
            avro.parsed(found.schema_str or "", named)

    @contextmanager
    def _translated(self, action: str) -> Generator[None]:
        try:
            yield
        except InvalidSchema:
            raise
        except Exception as error:  # Of an HTTP library that is another one with each version of the client.
            if isinstance(error, SchemaRegistryError) and error.error_code == _NOT_FOUND:
                raise _Unknown from error
            raise self._unavailable(action, error) from error

    def _unavailable(self, action: str, error: Exception) -> KafkaUnavailable:
        said = shown(f"{type(error).__name__}: {error}", self._url)
        return KafkaUnavailable(f"cannot {action} at {shown(self._url)}: {said}. Check that it answers, and the URL.")
