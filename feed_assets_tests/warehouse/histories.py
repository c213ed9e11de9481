"""Histories of a topic, and oracles in plain Python: all messages, and the versions of each key."""

from collections import defaultdict
from typing import Any

from feed_assets.core.sql_text import quoted
from feed_assets.warehouse.message_history import view_of, with_history
from feed_assets.warehouse.shapes import Shape
from feed_assets_tests.warehouse.ordered_chunks import OrderedStream
from feed_assets_tests.warehouse.topic_loader import Loader


class HistoryStream(OrderedStream):
    """A topic whose messages are the rows of a history. Without `newest_by` its versions are ordered by offset."""

    newest_by = ""

    def shape(self, schema_id: int | None) -> Shape | None:
        shape = super().shape(schema_id)
        return with_history(shape) if shape else shape


def history(loader: Loader, stream: HistoryStream) -> list[tuple[Any, ...]]:
    """Return the rows of a history, each with partition, offset, operation, and its values that are not null."""
    known = loader.known(stream)
    names = [each.name for each in known.shape.columns] if known.shape else []
    columns = ", ".join(map(quoted, ["_partition", "_offset", "_operation", *names]))
    rows = loader.ask(f"SELECT {columns} FROM {quoted(stream.name)} ORDER BY _partition, _offset")
    return [(*row[:3], _present(dict(zip(names, row[3:], strict=True)))) for row in rows]


def versions(loader: Loader, stream: HistoryStream) -> list[tuple[Any, ...]]:
    """Return the versions of a history, each with id, partition, offset, operation, and the range."""
    columns = "id, _partition, _offset, _operation, valid_from, valid_to, is_current"
    return loader.ask(f"SELECT {columns} FROM {quoted(view_of(stream.name))} ORDER BY 1, 2, 3")


def _present(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def expected_history(stream: HistoryStream, nexts: dict[int, int]) -> list[tuple[Any, ...]]:
    """Return the messages before these offsets as rows. A tombstone has only its key."""
    rows = list[tuple[Any, ...]]()
    for partition, offset, operation, value in sorted(stream.messages, key=lambda each: each[:2]):
        values = value if operation else {name: value[name] for name in stream.topic.key}
        if offset < nexts.get(partition, 0):
            rows.append((partition, offset, operation or "delete", _present(values)))
    return rows


def expected_versions(stream: HistoryStream, nexts: dict[int, int]) -> list[tuple[Any, ...]]:
    """Return the versions among the messages before these offsets, by a walk over the sorted rows of each key."""
    rows_of = defaultdict[Any, list[tuple[Any, ...]]](list)
    greatest = dict[tuple[Any, int], Any]()
    for partition, offset, operation, values in expected_history(stream, nexts):
        key, order = values["id"], offset
        if stream.newest_by:
            own, before = values.get(stream.newest_by), greatest.get((key, partition))
            highest = max([each for each in (own, before) if each is not None], default=None)
            greatest[key, partition] = highest
            order = highest if operation == "delete" else own
        chain = key if stream.newest_by else (key, partition)
        rank = (0, 0, partition, offset) if order is None else (1, order, partition, offset)
        rows_of[chain].append((rank, order, key, partition, offset, operation))
    found = list[tuple[Any, ...]]()
    for rows in rows_of.values():
        rows.sort(key=lambda each: each[0])
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            _, order, *place, operation = row
            is_at_known_time = following is None or following[1] is not None
            if operation != "delete" and is_at_known_time:
                valid_to = following and following[1]
                found.append((*place, operation, order, valid_to, following is None))
    return sorted(found, key=lambda each: each[:3])


def check_history(loader: Loader, stream: HistoryStream) -> None:
    """Check that the history has the messages before its positions once, and that the view has their versions."""
    known = loader.known(stream)
    if known.shape is None:
        return
    nexts = {number: each.next_offset for number, each in known.positions.items()}
    assert history(loader, stream) == expected_history(stream, nexts), "the history is not its messages"
    assert versions(loader, stream) == expected_versions(stream, nexts), "the versions are not those of the messages"
