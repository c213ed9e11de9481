"""The datasets, a folder for each domain. Dagster loads all definitions in here."""
