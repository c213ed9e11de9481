-- The image makes the database of the ledger; Dagster's storage is another one.
CREATE DATABASE dagster;
