"""Clients of mail servers that may answer without end."""

import smtplib

from feed_assets.core.size_limits import limited


class MailClient(smtplib.SMTP):
    """A client that reads a limited part of a server's answers."""

    def getreply(self) -> tuple[int, bytes]:
        """Return an answer. Raise SMTPServerDisconnected if the answers of this connection are too large."""
        if self.sock and not self.file:
            self.file = limited(self.sock)
        return super().getreply()


class TlsMailClient(MailClient, smtplib.SMTP_SSL):
    """A mail client that uses TLS from the start."""
