"""AWS Glue's schema registry of moto over HTTP, so that boto3 of any process reaches it by the environment."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import boto3
from botocore.exceptions import ClientError
from moto import mock_aws

from feed_assets_tests.support.aws_answers import aws_answers

REGION = "eu-west-1"


@dataclass
class GlueServer:
    """Address of the server, a client that registers schemas, and the requests that it answered."""

    url: str
    client: Any
    requests: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""
    """The code of an error with which all requests are answered."""

    @property
    def env(self) -> dict[str, str]:
        """Return the environment of a program that reads its schemas here."""
        keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_EC2_METADATA_DISABLED": "true"}
        return {**keys, "AWS_ENDPOINT_URL_GLUE": self.url, "AWS_DEFAULT_REGION": REGION}

    def register(self, name: str, form: str, text: str) -> UUID:
        """Register a version of a schema. Return its id."""
        place = {"RegistryId": {"RegistryName": "tests"}, "SchemaName": name}
        try:
            done = self.client.create_schema(**place, DataFormat=form, Compatibility="NONE", SchemaDefinition=text)
        except self.client.exceptions.AlreadyExistsException:
            schema = {"RegistryName": "tests", "SchemaName": name}
            done = self.client.register_schema_version(SchemaId=schema, SchemaDefinition=text)
        return UUID(done["SchemaVersionId"])

    def answer(self, _operation: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and the body that AWS gives for a request of GetSchemaVersion."""
        self.requests.append(asked)
        if self.error:
            return 400, {"__type": self.error, "message": "no"}
        try:
            found = self.client.get_schema_version(**asked)
        except ClientError as error:
            said = error.response["Error"]
            return 400, {"__type": said["Code"], "message": said["Message"]}
        return 200, {name: each for name, each in found.items() if name != "ResponseMetadata"}


@contextmanager
def glue_server() -> Iterator[GlueServer]:
    """Run the server until the block ends."""
    with mock_aws(config={"core": {"mock_credentials": False}}):
        keys = {"region_name": REGION, "aws_access_key_id": "x", "aws_secret_access_key": "y"}
        client = boto3.client("glue", endpoint_url=f"https://glue.{REGION}.amazonaws.com", **keys)
        client.create_registry(RegistryName="tests")
        with aws_answers() as (url, set_answer):
            server = GlueServer(url, client)
            set_answer(server.answer)
            yield server
