"""Schema changes: the row before, the row after, and the old row after the migration."""

from datetime import date
from decimal import Decimal

from feed_assets.warehouse import load as loads
from feed_assets_tests.support.warehouse_connection import opened


def field(type_="int", name="n", **more):
    return {"name": name, "type": type_, **more}


N = field()
UUID = {"type": "string", "logicalType": "uuid"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
DATE = {"type": "int", "logicalType": "date"}
U = "00000000-0000-0000-0000-000000000001"
MIGRATIONS = {
    "added": ([N], {"n": 1}, [N, field(["null", "string"], "m")], {"n": 2, "m": "x"}, {"n": 1, "m": None}),
    "added with a default": ([N], {"n": 1}, [N, field(name="m", default=5)], {"n": 2, "m": 6}, {"n": 1, "m": 5}),
    "added with a default in words": (
        [N], {"n": 1}, [N, field("string", "m", default="it's")], {"n": 2, "m": ""}, {"n": 1, "m": "it's"}
    ),
    "added with bytes": (
        [N], {"n": 1}, [N, field("bytes", "m", default="\xff")], {"n": 2, "m": b""}, {"n": 1, "m": b"\xff"}
    ),
    "added without a default": ([N], {"n": 1}, [N, field(name="m")], {"n": 2, "m": 3}, {"n": 1, "m": None}),
    "dropped": ([N, field(name="m")], {"n": 1, "m": 2}, [N], {"n": 2}, {"n": 1}),
    "renamed": ([N], {"n": 1}, [field(name="m", aliases=["n"])], {"m": 2}, {"m": 1}),
    "renamed to another one's name": (
        [N, field("string", "m")], {"n": 1, "m": "x"},
        [field(name="m", aliases=["n"]), field("string", "k", aliases=["m"])], {"m": 2, "k": "y"}, {"m": 1, "k": "x"},
    ),
    "widened": ([N], {"n": 1}, [field("long")], {"n": 2**40}, {"n": 1}),
    "widened with defaults": ([field(default=1)], {"n": 1}, [field("long", default=2)], {"n": 2**40}, {"n": 1}),
    "widened to text": ([field(UUID)], {"n": U}, [field("string")], {"n": "x"}, {"n": U}),
    "widened to a decimal": ([N], {"n": 1}, [field(DECIMAL)], {"n": Decimal("2.50")}, {"n": 1}),
    "widened to a double": ([N], {"n": 2**31 - 1}, [field("double")], {"n": 0.1}, {"n": 2**31 - 1}),
    "widened from a float": ([field("float")], {"n": 0.5}, [field("double")], {"n": 0.1}, {"n": 0.5}),
    "widened from a date": ([field(DATE)], {"n": date(26, 1, 2)}, [field("string")], {"n": "x"}, {"n": "0026-01-02"}),
    "nullable": ([N], {"n": 1}, [field(["null", "int"])], {"n": None}, {"n": 1}),
    "not nullable": ([field(["null", "int"])], {"n": None}, [N], {"n": 1}, {"n": None}),
    "narrowed": ([field("long")], {"n": 2**40}, [N], {"n": 1}, {"n": 2**40}),
    "reordered": ([N, field(name="m")], {"n": 1, "m": 2}, [field(name="m"), N], {"m": 4, "n": 3}, {"n": 1, "m": 2}),
    "all at once": (
        [N, field(name="x")], {"n": 1, "x": 2},
        [field(["null", "string"], "k", default=None), field("long", "m", aliases=["n"], doc="new", default=0)],
        {"k": "x", "m": 2**40}, {"k": None, "m": 1},
    ),
}  # fmt: skip


def rows_by_id(loader, stream):
    """Return the other fields of each row, with their names, by id."""
    with opened(loader.engine) as connection:
        shape = loads.load_state.read(connection, stream.name).shape
    names = [each.name for each in shape.columns]
    columns = ", ".join(f'"{name}"' for name in names)
    found = loader.ask(f'SELECT {columns} FROM "{stream.name}" ORDER BY id')
    return {
        row[names.index("id")]: {n: plain(v) for n, v in zip(names, row, strict=True) if n != "id"} for row in found
    }


def plain(value):
    return str(value) if type(value).__name__ == "UUID" else value
