"""Readers of the published forms: updates and their manifests. They import nothing of the system."""

import csv
import json
import re
from collections import defaultdict
from dataclasses import dataclass
from io import BytesIO, StringIO
from typing import Any

import pyarrow.parquet as pq

from feed_assets_tests.reliability.store import Store

ORDERS, STOCK = "shop/orders/v1.0", "depot/stock/v1.0"
CLEAN, JOINED, SLICES = "shop/clean/v1.0", "reports/joined/v1.0", "reports/slices/v1.0"
CLICKS, CLICKED = "partner/clicks/v1.0", "reports/clicked/v1.0"
FEEDS = (ORDERS, STOCK, CLICKS, CLEAN, JOINED, CLICKED, SLICES)
"""The feeds of the world, by their published names."""

MANIFEST = "_SUCCESS"
_UPDATE = re.compile(r"\d{8}\.\d{6}")
_COUNT = re.compile(rb"(0|[1-9][0-9]*)\n?")

Row = dict[str, Any]


@dataclass(frozen=True)
class Update:
    """A valid update: its path, its id, and the keys of its files."""

    path: str
    id: str
    files: tuple[str, ...]


def updates(store: Store, feed: str) -> dict[str, list[Update]]:
    """Return the valid updates of each partition or batch of a feed, oldest first."""
    objects = defaultdict[str, list[str]](list)
    for key in store.keys(feed):
        segments = key.split("/")
        place = next((at for at, name in enumerate(segments) if _UPDATE.fullmatch(name)), None)
        if place is not None:
            objects["/".join(segments[: place + 1])].append(key)
    found = defaultdict[str, list[Update]](list)
    for path, keys in sorted(objects.items()):
        if is_valid(store, path, keys):
            partition, _, name = path.removeprefix(f"{feed}/").rpartition("/")
            files = tuple(key for key in keys if key != f"{path}/{MANIFEST}")
            found[partition].append(Update(path, name, files))
    return dict(found)


def is_valid(store: Store, path: str, keys: list[str]) -> bool:
    """Return whether the manifest is the number of the other objects."""
    manifest = f"{path}/{MANIFEST}"
    if manifest not in keys or not (count := _COUNT.fullmatch(store.get(manifest))):
        return False
    return int(count[1]) == len(keys) - 1


def newest(store: Store, feed: str) -> dict[str, Update]:
    """Return the newest valid update of each partition."""
    return {partition: found[-1] for partition, found in updates(store, feed).items()}


def rows(store: Store, update: Update) -> list[Row]:
    """Return the rows of an update, whatever its format is."""
    return [row for key in update.files for row in rows_in(key, store.get(key))]


def rows_in(key: str, data: bytes) -> list[Row]:
    if key.endswith(".parquet"):
        return pq.read_table(BytesIO(data)).to_pylist()
    if key.endswith(".csv"):
        return [dict(row) for row in csv.DictReader(StringIO(data.decode()))]
    return [json.loads(line) for line in data.splitlines() if line.strip()]
