"""The global state store: what is reported of datasets, and the states of their windows that follow from it."""
