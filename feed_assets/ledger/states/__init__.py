"""The global state store: reports of counts of datasets, and the window states that follow from the counts."""
