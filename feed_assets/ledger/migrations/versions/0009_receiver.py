"""API keys of the receiver, and requests that it has answered."""

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import TEXT, UtcDateTime

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create both tables, which are empty."""
    op.create_table(
        "api_key",
        sa.Column("id", TEXT, primary_key=True, comment="the part of the key that is no secret"),
        sa.Column("partner", TEXT, nullable=False),
        sa.Column("digest", TEXT, nullable=False, comment="SHA-256 of the key"),
        sa.Column("scopes", TEXT, nullable=False, comment="JSON: the feeds and event sources that it may write"),
        sa.Column("made", UtcDateTime(), nullable=False),
        sa.Column("ends", UtcDateTime(), comment="when it was revoked, or rotation lets it end; NULL: it does not"),
    )
    op.create_index("api_key_of_partner", "api_key", ["partner"])
    op.create_table(
        "idempotency",
        sa.Column("feed", TEXT, primary_key=True),
        sa.Column("key", TEXT, primary_key=True, comment="Idempotency-Key of a request, as its partner chose it"),
        sa.Column("digest", TEXT, nullable=False, comment="of the body that came with it first"),
        sa.Column("receiver", TEXT, nullable=False, comment="whose spool has it, until it is answered from here"),
        sa.Column("answer", TEXT, comment="what was answered; NULL until its events are published"),
        sa.Column("at", UtcDateTime(), nullable=False),
    )
    op.create_index("idempotency_by_time", "idempotency", ["at"])
    if op.get_bind().dialect.supports_comments:
        op.alter_column("update_", "origin", comment="who writes it: foreign, run, rebuilt or intake")
