"""The Dagster layer: assets, sensors and conditions. The rules are in `core`, the work is in `runs`."""
