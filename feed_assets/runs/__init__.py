"""One partition's life, from pinned inputs to a published update, without Dagster."""
