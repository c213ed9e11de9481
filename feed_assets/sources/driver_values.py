"""Values that a driver cannot load. Such a cell becomes a text, so that it does not fail the whole read."""

from typing import Any

_LOADED = ("date", "time", "timetz", "timestamp", "timestamptz", "interval", "json", "jsonb")


def load_all(connection: Any, _record: object) -> None:
    """Make a new connection return texts for values that Python cannot represent.

    Examples are infinite times, years beyond 9999, deeply nested JSON and, on SQLite, text that is not UTF-8.
    """
    if hasattr(connection, "adapters"):  # This is a connection of psycopg.
        for name in _LOADED:
            _tolerate(connection, name)
    elif hasattr(connection, "text_factory"):
        connection.text_factory = _decoded


def _decoded(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def _tolerate(connection: Any, name: str) -> None:
    from psycopg import Error
    from psycopg.adapt import Loader
    from psycopg.pq import Format

    oid = connection.adapters.types[name].oid
    loader_type: Any = connection.adapters.get_loader(oid, Format.TEXT)

    class Tolerant(Loader):
        """The driver's loader, which falls back to text."""

        def __init__(self, oid: int, context: Any = None) -> None:
            super().__init__(oid, context)
            self._loader = loader_type(oid, context)

        def load(self, data: Any) -> Any:
            """Return the value of a cell. If the driver cannot convert the cell, return its text."""
            try:
                return self._loader.load(data)
            except (Error, ValueError, OverflowError, RecursionError):
                return _decoded(bytes(data))

    connection.adapters.register_loader(oid, Tolerant)
