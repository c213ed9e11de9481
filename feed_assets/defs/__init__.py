"""The datasets, with a folder for each domain. Dagster loads all definitions in this folder."""
