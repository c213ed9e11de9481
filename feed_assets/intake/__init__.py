"""Intake: what others send or offer becomes batches of appendable feeds. Nothing here imports Dagster."""
