"""The Dagster skin: assets, sensors, conditions. Rules live in `core`, work in `runs`."""
