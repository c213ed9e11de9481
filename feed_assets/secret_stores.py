"""Secrets that AWS keeps. A variable of the environment may refer to one instead of containing it (ADR 139)."""

import time
from contextlib import closing
from functools import cache
from typing import Any

from feed_assets.core.errors import SecretUnavailable, in_short
from feed_assets.core.message_words import sentence
from feed_assets.core.time_limits import in_time

ANSWER_SECONDS = 15.0
"""Seconds that AWS has for one secret. Credentials, DNS and repeated requests are included."""

REQUEST_SECONDS = 5.0
"""Seconds after which a request without an answer is repeated, so that one lost packet does not end a run."""

SECRET, PARAMETER = "aws-secretsmanager:", "aws-ssm:"
"""The prefixes of a reference to a secret of Secrets Manager, and to a parameter of the Parameter Store.

Messages show these references. With a plain `secret:` as the prefix, the rest would be hidden like a password.
"""


def resolved(variable: str, text: str) -> str:
    """Return the text of a variable, or the secret that it refers to.

    A process reads each secret once, at the first use. The secret is kept in memory. After an error, the next call asks
    AWS again.

    Raises:
        SecretUnavailable: AWS does not have the secret, refuses it, or does not answer within `ANSWER_SECONDS`.
    """
    if not text.startswith((SECRET, PARAMETER)):
        return text
    try:
        return _read(text)
    except Exception as error:  # A provider of credentials is a program of the user, and may raise any error.
        kind, right = _KINDS[text.partition(":")[0]]
        raise SecretUnavailable(
            f"{variable} is {text!r}, and AWS does not give it: {sentence(in_short(error))} Expected {kind} that this "
            f"process may read. Check the name, AWS_DEFAULT_REGION, the credentials and the right {right}; what is "
            f"encrypted with a key of your own also needs kms:Decrypt."
        ) from error


_KINDS = {
    "aws-secretsmanager": ("a secret of AWS Secrets Manager with a text", "secretsmanager:GetSecretValue"),
    "aws-ssm": ("a parameter of the AWS Parameter Store", "ssm:GetParameter"),
}


@cache
def _read(reference: str) -> str:
    until = time.monotonic() + ANSWER_SECONDS
    call = _secret if reference.startswith(SECRET) else _parameter
    name = reference.partition(":")[2]
    try:
        text = in_time(lambda: call(name), lambda: time.monotonic() > until)
    except TimeoutError:
        raise TimeoutError(f"no answer within {ANSWER_SECONDS:g} s") from None
    return text.rstrip("\r\n")  # Editors often end a file with a newline, which `$(…)` of a shell drops, too.


def _secret(name: str) -> str:
    with closing(_client("secretsmanager")) as client:
        answer = client.get_secret_value(SecretId=name)
    if "SecretString" not in answer:
        raise ValueError("it has bytes instead of a text")
    return answer["SecretString"]


def _parameter(name: str) -> str:
    with closing(_client("ssm")) as client:
        return client.get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"]


def _client(service: str) -> Any:
    """Return a client. The caller must close it, because a process must have no open connection when it forks a run."""
    # Imported here: boto3 takes 0.3 s, and few processes need it.
    import boto3  # pyright: ignore[reportMissingTypeStubs]
    from botocore.config import Config  # pyright: ignore[reportMissingTypeStubs]

    session: Any = boto3.Session()
    timeouts = {"connect_timeout": REQUEST_SECONDS, "read_timeout": REQUEST_SECONDS}
    return session.client(service, config=Config(**timeouts, retries={"mode": "standard", "total_max_attempts": 3}))
