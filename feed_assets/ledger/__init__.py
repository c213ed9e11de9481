"""The global state store: one SQL database, and the only thing that decisions read."""
