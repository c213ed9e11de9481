"""The servers that alerts are delivered to."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from feed_assets_tests.support.alert_channels import Receiver, web_server
from feed_assets_tests.support.mail_server import MailServer, certified, mail_server


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with web_server() as running:
        yield running


@pytest.fixture
def mails() -> Iterator[MailServer]:
    """Yield a mail server without encryption."""
    with mail_server() as running:
        yield running


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusted(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """Return the TLS of a server. Trust its authority by the variable that an operator would set."""
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    return certified(authority)
