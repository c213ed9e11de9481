"""Schemas that messages name by foreign ids: global ids of Apicurio, and versions of AWS Glue.

Source: "Registry serdes" of Apicurio's documentation. Version 2 of its API is in its releases 2 and 3.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, cast
from uuid import UUID

import requests
from confluent_kafka.schema_registry import Schema, SchemaReference

from feed_assets.core.errors import KafkaUnavailable
from feed_assets.core.http_sessions import listing_session
from feed_assets.core.secrets import masked
from feed_assets.kafka.glue_schemas import GlueSchemas
from feed_assets.kafka.schema_limits import REQUESTS, InvalidSchema, UnknownSchema, check_most

_SECONDS = 10

_DEFAULT_GROUP = (None, "", "default")
"""Names of Apicurio's group whose artifacts are the registry's subjects."""


@dataclass(frozen=True)
class GlobalId:
    """An id that Apicurio gives to each version of an artifact. Its content id is another number."""

    number: int

    def __str__(self) -> str:
        """Return the number, marked as a global id."""
        return f"{self.number} (a global id)"


def subject_of_copy(schema: Schema) -> str:
    """Return the subject of a copied schema. It has a digest, so equal schemas have one copy with one id."""
    references = [(each.name, each.subject, each.version) for each in schema.references or ()]
    content = json.dumps([schema.schema_type, schema.schema_str, references])
    return f"feed_assets-schemas-{sha256(content.encode()).hexdigest()[:32]}"


ForeignId = GlobalId | UUID
"""An id that the registry's own API does not have. A UUID is that of a version in AWS Glue."""


class ForeignSchemas:
    """Reader of schemas by foreign ids. `url` is the URL of the registry."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._glue = GlueSchemas()
        self._session: requests.Session | None = None

    def close(self) -> None:
        """Close the connections."""
        self._glue.close()
        if self._session is not None:
            self._session.close()
            self._session = None

    def versions(self, schema_id: ForeignId, form: str) -> Iterator[Schema]:
        """Yield a schema, and before it the versions of Glue that precede it. `form` is the one that a topic declares.

        Raise UnknownSchema, InvalidSchema, KafkaUnavailable, or any error of the connection.
        """
        return self._glue.versions(schema_id, form) if isinstance(schema_id, UUID) else self._global(schema_id, form)

    def note_copied(self, schema_id: ForeignId) -> None:
        """Note that a schema was copied, and the versions before it: they are not read again."""
        if isinstance(schema_id, UUID):
            self._glue.note_copied(schema_id)

    def _global(self, schema_id: GlobalId, form: str) -> Iterator[Schema]:
        path = f"ids/globalIds/{schema_id.number}"
        text, references = self._answer(path), self._answer(f"{path}/references")
        yield Schema(text.decode(errors="replace"), form, [_reference(each) for each in _listed(references)])

    def _answer(self, path: str) -> bytes:
        base, count = re.subn("/apis/ccompat/.*", "/apis/registry/v2", self._url, flags=re.DOTALL)
        if not count:
            raise KafkaUnavailable(
                f"cannot look up {path}: FEED_ASSETS_KAFKA_REGISTRY is {masked(self._url)}, and global ids are those "
                "of Apicurio: expected its URL, which ends with /apis/ccompat/v7. Correct it, or the topic's framing."
            )
        self._session = self._session or listing_session([])
        auth = requests.utils.get_auth_from_url(base)
        with self._session.get(f"{base}/{path}", auth=auth if auth[0] else None, timeout=_SECONDS) as answer:
            if answer.status_code == requests.codes.not_found and _names_artifact(answer.content):
                raise UnknownSchema
            answer.raise_for_status()
            return answer.content


def _names_artifact(body: bytes) -> bool:
    """Return whether an answer says that the registry lacks an artifact. A wrong URL has another error."""
    try:
        error: Any = json.loads(body)
    except ValueError:
        return False
    name = str(cast("dict[str, Any]", error).get("name")) if isinstance(error, dict) else ""
    return name.endswith("NotFoundException") and name != "NotFoundException"


def _listed(body: bytes) -> list[Mapping[str, Any]]:
    references = json.loads(body)
    check_most(len(references), REQUESTS, "references")
    return references


def _reference(each: Mapping[str, Any]) -> SchemaReference:
    """Return a reference as the registry's own API has it, in which an artifact is a subject."""
    version = str(each.get("version") or "")
    if each.get("groupId") not in _DEFAULT_GROUP or not version.isdecimal():
        place = f"version {version or 'none'} of {each.get('artifactId')} in the group {each.get('groupId')}"
        raise InvalidSchema(f"it refers to {place}: expected the default group, and a version that is a number")
    return SchemaReference(str(each.get("name")), str(each.get("artifactId")), int(version))
