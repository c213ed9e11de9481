"""The ledger, the global state store: one SQL database. Decisions read nothing else."""
