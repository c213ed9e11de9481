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
        sa.Column("placed", TEXT, comment="its compute target, and why; NULL if none is configured"),
    )
    op.add_column(
        "run", sa.Column("cores", sa.BigInteger(), comment="cores that the target gave it; NULL if no target did")
    )
    op.add_column(
        "due",
        sa.Column(
            "allocation", TEXT, comment="id of the last row of `allocation` for its runs; the row may be removed"
        ),
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
        sa.Column("asked", UtcDateTime(), comment="when a process last began a probe"),
        sa.Column("at", UtcDateTime(), comment="when the last answered probe began; NULL if none was answered"),
        sa.Column("cores", sa.BigInteger(), comment="all cores of the target"),
        sa.Column("memory", sa.BigInteger(), comment="all memory of the target, in bytes"),
        sa.Column("free_cores", sa.BigInteger()),
        sa.Column("free_memory", sa.BigInteger()),
        sa.Column("queued", sa.BigInteger(), comment="number of applications that wait there"),
        sa.Column("offline", TEXT, comment="why it does not answer; NULL if it answers"),
        sa.Column("since", UtcDateTime(), comment="since when it does not answer"),
        sa.Column("lost", UtcDateTime(), comment="when a run last lost it; it gets no run for a while"),
        sa.Column("workers", TEXT, comment="JSON: cores, memory and free parts of each machine; NULL if unknown"),
        sa.Column("unstarted", TEXT, comment="dataset whose Spark last failed to start there; NULL after a start"),
        sa.PrimaryKeyConstraint("target"),
    )
    op.create_table(
        "allocation",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("target", TEXT, comment="compute target of a run; NULL if the request waits"),
        sa.Column("cores", sa.BigInteger(), comment="cores of the run there; NULL if the request waits"),
        sa.Column("memory", sa.BigInteger(), comment="memory of the run there, in bytes"),
        sa.Column("resources", TEXT, nullable=False, comment="JSON: the resources that its dataset needs"),
        sa.Column("history", sa.Boolean(), nullable=False, comment="true if it comes after all new partitions"),
        sa.Column("output", TEXT, nullable=False, comment="first partition that the run builds"),
        sa.Column("since", UtcDateTime(), nullable=False, comment="when the request began to wait"),
        sa.Column(
            "at", UtcDateTime(), nullable=False, comment="when the target was given, or the request was last checked"
        ),
        sa.Column("targets", TEXT, nullable=False, comment="JSON: targets that the requesting process can use"),
        sa.Column("reason", TEXT, nullable=False, comment="why it has this target, or what it waits for"),
        sa.Column("dagster_run", TEXT, comment="Dagster run that uses the resources; NULL before it begins"),
        sa.Column("started", UtcDateTime(), comment="when the run's Spark session had started"),
        sa.PrimaryKeyConstraint("id"),
    )
