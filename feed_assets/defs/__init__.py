"""The datasets, a folder for each domain. Dagster loads whatever is declared here."""
