"""The data of feeds for programs without Dagster, and without Spark unless they bring a session."""
