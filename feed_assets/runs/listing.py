"""One listing of a foreign feed: the files below some names, grouped by partition and update.

A name is the first segment of a partition's key, such as `2024-05-01`: it stands directly below the feed. Discovery
visits a name when it reads the name's partitions one by one. A listing saves most of these visits.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Self

from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import MANIFEST, MANIFEST_LIMIT, Feed, File, Partition, Update, is_update_id, why_invalid
from feed_assets.core.limits import check_partition
from feed_assets.feeds.blackboard import Blackboard

_FilesById = dict[str, list[File]]


@dataclass(frozen=True)
class Listing:
    """All files of a feed below the names from `first` to `last`. Files below later names may be among them."""

    board: Blackboard
    feed: Feed
    first: str
    last: str
    files: tuple[File, ...]

    @classmethod
    def of(cls, board: Blackboard, feed: Feed, names: Collection[str]) -> Self | None:
        """List the files below some names by one request. Return None if one request cannot list them all."""
        first, last = min(names), max(names)
        files = board.page_of_files(str(feed), f"{feed}/{first}", f"{feed}/{last}" if last else "")
        return None if files is None else cls(board, feed, first, last, files)

    def has(self, name: str) -> bool:
        """Return whether the listing has all files below a name."""
        return self.first <= name <= self.last

    @cached_property
    def newest(self) -> Mapping[Partition, Update]:
        """Return the newest listed update of each partition, without files if its manifest is missing."""
        return {partition: _newest(partition, by_id) for partition, by_id in self._updates.items()}

    @cached_property
    def _by_name(self) -> Mapping[str, list[Update]]:
        updates: dict[str, list[Update]] = {}
        for partition, update in self.newest.items():
            updates.setdefault(name_of(partition.key), []).append(update)
        return updates

    @cached_property
    def _updates(self) -> Mapping[Partition, _FilesById]:
        updates: dict[Partition, _FilesById] = {}
        for file in self.files:
            segments = self._segments(file)
            number = next((number for number, segment in enumerate(segments) if is_update_id(segment)), None)
            with suppress(InvalidName):  # Skip it here: a visit will report that the name is invalid.
                if number is not None:
                    partition = check_partition(Partition(self.feed, "/".join(segments[:number])))
                    updates.setdefault(partition, {}).setdefault(segments[number], []).append(file)
        return updates

    @cached_property
    def _odd_names(self) -> set[str]:
        """Return the names that only a visit can judge: they have files outside of updates, or nested partitions."""
        in_updates = {file.key for by_id in self._updates.values() for files in by_id.values() for file in files}
        odd_names = {self._segments(file)[0] for file in self.files if file.key not in in_updates}
        keys = sorted(f"{partition.key}/" for partition in self._updates)
        return odd_names | {name_of(key) for key, following in pairwise(keys) if following.startswith(key)}

    def _segments(self, file: File) -> list[str]:
        return file.key.removeprefix(f"{self.feed}/").split("/")

    def valid_updates(self, name: str) -> list[Update]:
        """Return the newest update of each partition under a name. Return [] if only a visit can judge the name.

        Each update costs a request for its manifest, and on local disk a second listing.
        """
        updates = self._by_name.get(name, []) if self.has(name) and name not in self._odd_names else []
        return updates if all(map(self._is_valid, updates)) else []

    def _is_valid(self, update: Update) -> bool:
        """Return whether an update is valid.

        Its manifest is written last, so a listing with the manifest has all files. This does not hold on local disk,
        where files may be written while they are listed. There, the update is listed again after its manifest was read,
        and must have the same files.
        """
        if not self.is_counted(update):
            return False
        if self.board.is_of_one_moment(self.files):
            return True
        listed = self.board.files(update.path)
        files = tuple(file for file in listed if file.key != f"{update.path}/{MANIFEST}")
        return files == update.files and len(files) < len(listed)

    def is_counted(self, update: Update) -> bool:
        """Read an update's manifest. Return whether the manifest contains the number of the listed files."""
        manifest = self.board.get(f"{update.path}/{MANIFEST}", MANIFEST_LIMIT + 1)
        return why_invalid(manifest, update.files) is None


def name_of(key: str) -> str:
    """Return the first segment of a partition's key, which is a name directly below the feed."""
    return key.split("/", 1)[0]


def _newest(partition: Partition, by_id: _FilesById) -> Update:
    newest = max(by_id)
    manifest = f"{partition.path}/{newest}/{MANIFEST}"
    data_files = tuple(sorted(file for file in by_id[newest] if file.key != manifest))
    return Update(partition, newest, data_files if len(data_files) < len(by_id[newest]) else ())
