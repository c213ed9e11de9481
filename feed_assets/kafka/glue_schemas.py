"""Versions of schemas in the AWS Glue Schema Registry, by the UUIDs that messages have.

Source: the operation GetSchemaVersion of AWS Glue. boto3 takes region, credentials and endpoint from the environment.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any
from uuid import UUID

from confluent_kafka.schema_registry import Schema

from feed_assets.core.errors import KafkaUnavailable, in_short
from feed_assets.core.message_words import sentence
from feed_assets.kafka.schema_limits import REQUESTS, InvalidSchema, UnknownSchema

REQUEST_SECONDS = 5.0
"""Seconds after which a request without an answer is repeated."""

_NOT_FOUND = "EntityNotFoundException"


class GlueSchemas:
    """Reader of versions of schemas."""

    def __init__(self) -> None:
        self._reached: dict[str, int] = {}
        """The greatest version of each schema that was copied with the versions before it, by the schema's ARN."""
        self._numbers: dict[UUID, tuple[str, int]] = {}
        """The ARNs and numbers of versions that were read and not copied yet."""

    def close(self) -> None:
        """Close the connections."""
        if client := self.__dict__.pop("_client", None):
            client.close()

    def versions(self, version_id: UUID, form: str) -> Iterator[Schema]:
        """Yield the version with an id. Before it, yield the versions that precede it, unless they were copied already.

        So versions can be copied in their order, whichever a topic has first. Raise UnknownSchema, InvalidSchema if the
        schema has another form, and KafkaUnavailable.
        """
        answer = self._version(SchemaVersionId=str(version_id))
        if answer["DataFormat"] != form:
            raise InvalidSchema(f"it is {answer['DataFormat']}, not {form}")
        arn, number = answer["SchemaArn"], answer["VersionNumber"]
        for earlier in range(max(self._reached.get(arn, 0) + 1, number - REQUESTS), number):
            try:
                before = self._version(SchemaId={"SchemaArn": arn}, SchemaVersionNumber={"VersionNumber": earlier})
            except UnknownSchema:  # The version was deleted.
                continue
            yield Schema(before["SchemaDefinition"], form)
        self._numbers[version_id] = arn, number
        yield Schema(answer["SchemaDefinition"], form)

    def note_copied(self, version_id: UUID) -> None:
        """Note that a version and those before it were copied. If a copy fails, all are read again."""
        arn, number = self._numbers.pop(version_id)
        self._reached[arn] = max(self._reached.get(arn, 0), number)

    def _version(self, **place: Any) -> dict[str, Any]:
        with _translated():
            return self._client.get_schema_version(**place)

    @cached_property
    def _client(self) -> Any:
        # Imported here: boto3 takes 0.3 s, and few processes need it.
        import boto3  # pyright: ignore[reportMissingTypeStubs]
        from botocore.config import Config  # pyright: ignore[reportMissingTypeStubs]

        timeouts = {"connect_timeout": REQUEST_SECONDS, "read_timeout": REQUEST_SECONDS}
        session: Any = boto3.Session()
        return session.client("glue", config=Config(**timeouts, retries={"mode": "standard", "total_max_attempts": 3}))


@contextmanager
def _translated() -> Generator[None]:
    """Translate boto3's errors. No text has the id: of a message without this framing it would be its content."""
    try:
        yield
    except Exception as error:  # A provider of credentials is a program of the user, and may raise any error.
        if getattr(error, "response", {}).get("Error", {}).get("Code") == _NOT_FOUND:
            raise UnknownSchema from error
        raise KafkaUnavailable(
            f"cannot look up a schema in AWS Glue: {sentence(in_short(error))} Check AWS_DEFAULT_REGION, the "
            "credentials and the right glue:GetSchemaVersion."
        ) from error
