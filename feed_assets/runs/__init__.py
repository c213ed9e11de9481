"""The build of one partition, from pinned inputs to a published update, without Dagster."""
