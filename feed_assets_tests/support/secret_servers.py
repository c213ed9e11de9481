"""Secrets Manager and the Parameter Store of moto over HTTP, so that other processes reach them, too."""

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import boto3
from botocore.exceptions import ClientError
from moto import mock_aws

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

    def answer(self, operation: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and the body that AWS gives for a request."""
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
        listening = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
        server = SecretServer(f"http://127.0.0.1:{listening.server_port}", *made)
        listening.RequestHandlerClass = _handler(server)
        thread = Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            listening.shutdown()
            listening.server_close()
            thread.join()


def _handler(server: SecretServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            operation = self.headers["X-Amz-Target"].partition(".")[2]
            if server.silent:
                server.silent -= 1
                server.over.wait()
                return
            status, answer = server.answer(operation, body)
            content = json.dumps(answer, default=_plain).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    return Handler


def _plain(value: Any) -> Any:
    return b64encode(value).decode() if isinstance(value, bytes) else value.timestamp()
