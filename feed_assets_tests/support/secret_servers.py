"""Secrets Manager and the Parameter Store of moto over HTTP, so that other processes reach them, too."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import boto3
from botocore.exceptions import ClientError
from moto import mock_aws

from feed_assets_tests.support.aws_answers import aws_answers

REGION = "eu-west-1"
AWS = {"core": {"mock_credentials": False}}


@dataclass
class SecretServer:
    """Address of the server, clients that write its secrets, and the requests that it answered."""

    url: str
    secrets: Any
    parameters: Any
    requests: list[str] = field(default_factory=list)
    silent: int = 0
    """Number of next requests that get no answer."""
    over: Event = field(default_factory=Event)

    @property
    def env(self) -> dict[str, str]:
        """Return the environment of a program that reads its secrets here."""
        return {**environment(self.url), "AWS_DEFAULT_REGION": REGION}

    def answer(self, operation: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        """Return the status and the body that AWS gives for a request. Return None, late, for a silent server."""
        if self.silent:
            self.silent -= 1
            self.over.wait()
            return None
        self.requests.append(f"{operation} {asked.get('SecretId') or asked.get('Name')}")
        try:
            if operation == "GetSecretValue":
                found = self.secrets.get_secret_value(**asked)
            else:
                found = self.parameters.get_parameter(**asked)
        except ClientError as error:
            said = error.response["Error"]
            return 400, {"__type": said["Code"], "message": said["Message"]}
        return 200, {key: value for key, value in found.items() if key in ("SecretString", "SecretBinary", "Parameter")}


def environment(url: str) -> dict[str, str]:
    """Return the environment of a program whose secrets are at this address, whatever answers there."""
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_EC2_METADATA_DISABLED": "true"}
    return {**keys, "AWS_ENDPOINT_URL_SECRETS_MANAGER": url, "AWS_ENDPOINT_URL_SSM": url}


@contextmanager
def secret_server() -> Iterator[SecretServer]:
    """Run the server until the block ends. boto3 reaches it by the environment of `SecretServer.env` alone."""
    with mock_aws(config=AWS):
        keys = {"region_name": REGION, "aws_access_key_id": "x", "aws_secret_access_key": "y"}
        made = [
            boto3.client(name, endpoint_url=f"https://{name}.{REGION}.amazonaws.com", **keys)
            for name in ("secretsmanager", "ssm")
        ]
        with aws_answers() as (url, set_answer):
            server = SecretServer(url, *made)
            set_answer(server.answer)
            try:
                yield server
            finally:
                server.over.set()
