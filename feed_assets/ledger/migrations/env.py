"""Alembic's environment: migrations run on the connection that the ledger hands over."""

from alembic import context

from feed_assets.ledger.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
