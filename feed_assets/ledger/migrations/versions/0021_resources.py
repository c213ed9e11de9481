"""Compute targets: their answers, and the resources that runs have or wait for."""

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import TEXT, UtcDateTime

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Create the tables, and the columns that refer to their rows."""
    op.add_column(
        "run",
        sa.Column("placed", TEXT, comment="the compute target that it was given, and why; NULL: none is configured"),
    )
    op.add_column("run", sa.Column("cores", sa.BigInteger(), comment="that it had there; NULL: no target gave it any"))
    op.add_column(
        "due",
        sa.Column("allocation", TEXT, comment="the last row of `allocation` of its runs; the row may be gone"),
    )
    op.create_index(
        "due_of_allocation",
        "due",
        ["allocation"],
        sqlite_where=sa.text("allocation IS NOT NULL"),
        postgresql_where=sa.text("allocation IS NOT NULL"),
    )
    op.create_table(
        "probe",
        sa.Column("target", TEXT, nullable=False, comment="compute target, by its name in the settings"),
        sa.Column("asked", UtcDateTime(), comment="when a process last began to ask it"),
        sa.Column(
            "at", UtcDateTime(), comment="when the process of the last answer began to ask; NULL: none has answered"
        ),
        sa.Column("cores", sa.BigInteger(), comment="all that it has"),
        sa.Column("memory", sa.BigInteger(), comment="bytes, all that it has"),
        sa.Column("free_cores", sa.BigInteger()),
        sa.Column("free_memory", sa.BigInteger()),
        sa.Column("queued", sa.BigInteger(), comment="applications that wait there"),
        sa.Column("offline", TEXT, comment="why it gives no answer; NULL: it does"),
        sa.Column("since", UtcDateTime(), comment="since when it gives none"),
        sa.Column("lost", UtcDateTime(), comment="when a run last lost it: it gets no run for a while"),
        sa.Column(
            "workers", TEXT, comment="JSON: of each machine cores, memory, free cores, free memory; NULL: unknown"
        ),
        sa.Column(
            "unstarted", TEXT, comment="dataset whose Spark last could not start there; NULL: one has started since"
        ),
        sa.PrimaryKeyConstraint("target"),
    )
    op.create_table(
        "allocation",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("target", TEXT, comment="compute target that a run has; NULL: its request waits"),
        sa.Column("cores", sa.BigInteger(), comment="that it has there; NULL: its request waits"),
        sa.Column("memory", sa.BigInteger(), comment="bytes that it has there"),
        sa.Column("resources", TEXT, nullable=False, comment="JSON: what its dataset needs"),
        sa.Column("history", sa.Boolean(), nullable=False, comment="whether it comes after all new partitions"),
        sa.Column("output", TEXT, nullable=False, comment="first partition that the run builds"),
        sa.Column("since", UtcDateTime(), nullable=False, comment="since when the request waits, or waited"),
        sa.Column("at", UtcDateTime(), nullable=False, comment="when it was given, or last looked at"),
        sa.Column("targets", TEXT, nullable=False, comment="JSON: targets that the process of the request can use"),
        sa.Column("reason", TEXT, nullable=False, comment="why this target, or what it waits for"),
        sa.Column("dagster_run", TEXT, comment="Dagster run that uses it; NULL: it has not begun"),
        sa.Column("started", UtcDateTime(), comment="when the run's Spark session was up"),
        sa.PrimaryKeyConstraint("id"),
    )
