"""A real mail server for tests.

As some servers do, it accepts a password without encryption and repeats a wrong one.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage

import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from feed_assets_tests.support.servers import free_ports

USER, PASSWORD = "alerts@example.com", "p@ss/w#rd:1"


@dataclass
class MailServer:
    """Mails received, and what the server refuses: recipients, and mails with a word in their subject."""

    port: int = field(default_factory=lambda: free_ports(1)[0])
    mails: list[EmailMessage] = field(default_factory=list)
    encrypted: list[bool] = field(default_factory=list)
    passwords: list[str] = field(default_factory=list)
    refused: tuple[str, ...] = ()
    refused_word: str = "no mail has this word"

    async def handle_RCPT(self, server, session, envelope, address, options) -> str:  # noqa: N802
        if address in self.refused:
            return "550 no such receiver"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope) -> str:  # noqa: N802
        mail = message_from_bytes(envelope.content, policy=policy.default)
        if self.refused_word in mail["Subject"]:
            return "554 refused"
        self.mails.append(mail)
        self.encrypted.append(server.transport.get_extra_info("sslcontext") is not None)
        return "250 OK"

    def authenticate(self, server, session, envelope, mechanism, login: LoginPassword) -> AuthResult:
        self.passwords.append(login.password.decode())
        if login == LoginPassword(USER.encode(), PASSWORD.encode()):
            return AuthResult(success=True)
        return AuthResult(success=False, handled=False, message=f"535 {login.password.decode()} is wrong")


@contextmanager
def mail_server(starttls: ssl.SSLContext | None = None, tls: ssl.SSLContext | None = None) -> Iterator[MailServer]:
    """Run a mail server until the block ends: without encryption, with STARTTLS, or with TLS from the start."""
    server = MailServer()
    controller = Controller(
        server,
        hostname="127.0.0.1",
        port=server.port,
        ssl_context=tls,
        tls_context=starttls,
        authenticator=server.authenticate,
        auth_require_tls=False,
    )
    controller.start()
    try:
        yield server
    finally:
        controller.stop()


def certified(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context
