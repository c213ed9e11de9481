"""AWS Glue's schema registry of moto over HTTP, so that boto3 of any process reaches it by the environment."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from uuid import UUID

import boto3
from botocore.exceptions import ClientError
from moto import mock_aws

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

    def answer(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
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
        listening = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
        server = GlueServer(f"http://127.0.0.1:{listening.server_port}", client)
        listening.RequestHandlerClass = _handler(server)
        thread = Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            listening.server_close()
            thread.join()


def _handler(server: GlueServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, answer = server.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            content = json.dumps(answer, default=str).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    return Handler
