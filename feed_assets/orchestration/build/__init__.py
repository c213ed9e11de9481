"""What a run of Dagster does: the assets, their makers, and what they report."""
