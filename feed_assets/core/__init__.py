"""Rules as pure functions over frozen values: no Dagster, Spark, SQL or storage in here."""
