"""Writing of a File Feed: claim an id, write the parts, seal. The process may be killed at any point.

Readers rely on the manifest, which is written last. So if a writer is killed earlier, readers skip its update. The
update's id is never used again.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Literal
from uuid import uuid4

from feed_assets.core.errors import BlackboardUnavailable, InvalidName, NotRevalidated, NoValidUpdate, UpdateAbandoned
from feed_assets.core.feeds import (
    MANIFEST,
    MANIFEST_LIMIT,
    File,
    Partition,
    Update,
    check_segment,
    is_update_id,
    next_update_id,
    parse_manifest,
    why_invalid,
)
from feed_assets.core.limits import check_partition
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.local_disk import HALF_WRITTEN, FileBelow
from feed_assets.feeds.newest_names import newest_first

CLAIMS = "_feed_assets/claims"
"""The prefix of claims: outside every feed, so that a listing of a feed shows updates only."""

INTAKE = "intake "
"""The prefix of the claim tokens of intake. Intake has no run: it publishes within one call."""

_CLAIM_TRIES = 2
"""Number of times that a claim without a reply is sent again, after the client's own retries."""

_UNFINISHED = re.compile(r"(^|/)[._]|#[0-9]+$")


def claim(board: Blackboard, partition: Partition, token: bytes, now: datetime, *, after: str | None = None) -> str:
    """Claim a new update id, greater than `after` and than every id and claim in the partition.

    `token` identifies this writer. If the reply to a create request is lost, the client sends the request again. The
    writer then recognises the existing claim by the token. At worst, a kill leaves one id that is never used. Raise
    InvalidName if listings would skip the partition's key.
    """
    claims = f"{CLAIMS}/{check_partition(partition).path}"
    claimed = (file.key.rsplit("/", 1)[-1] for file in board.files(claims))
    updates = filter(is_update_id, chain.from_iterable(newest_first(board, partition.path)))
    candidate = next_update_id(now, [*islice(updates, 1), *claimed, *([after] if after else [])])
    while not _is_taken(board, f"{claims}/{candidate}", token):
        candidate = next_update_id(now, [candidate])
    return candidate


def _is_taken(board: Blackboard, key: str, token: bytes) -> bool:
    """Create the claim, or read the existing one. Return whether the claim belongs to this writer.

    If a reply was lost, the store may still apply that request later. Sending the request again is safe, because the
    token is the same.
    """
    for _ in range(_CLAIM_TRIES):
        try:
            return board.create(key, token) or board.get(key, len(token) + 1) == token
        except BlackboardUnavailable:
            if (content := board.get(key, len(token) + 1)) is not None:
                return content == token
    return board.create(key, token) or board.get(key, len(token) + 1) == token


def listed(board: Blackboard, partition: Partition, update_id: str) -> tuple[File, ...]:
    """Return all objects under an update, except its manifest."""
    path = _path(partition, update_id)
    return tuple(file for file in board.files(path) if file.key != f"{path}/{MANIFEST}")


def seal(board: Blackboard, partition: Partition, update_id: str, expected: Sequence[File]) -> Update:
    """Make an update visible: put its manifest if a last listing shows exactly `expected` (key and size).

    A second call changes nothing. The put is atomic: if the process is killed before it, nothing is visible.
    """
    path = _path(partition, update_id)
    _refuse_unfinished(path, expected)
    _clear_half_written(board, path, expected)
    files = listed(board, partition, update_id)
    _refuse_differences(path, expected, files)
    content, manifest = str(len(files)).encode(), board.get(f"{path}/{MANIFEST}", MANIFEST_LIMIT + 1)
    if manifest is None:
        _put_manifest(board, f"{path}/{MANIFEST}", content)
    elif parse_manifest(manifest) != len(files):
        raise UpdateAbandoned(
            f"{path} already has a manifest that says {manifest[:24]!r}: claim another id and write again."
        )
    return Update(partition, update_id, files)


def _put_manifest(board: Blackboard, key: str, content: bytes) -> None:
    """Put the manifest. If no reply arrives, read the manifest: the put may have succeeded."""
    try:
        board.put(key, content)
    except BlackboardUnavailable:
        if board.get(key, MANIFEST_LIMIT + 1) != content:
            raise


def check_part(name: str) -> None:
    """Raise InvalidName for an invalid name of a part."""
    for segment in name.split("/"):
        check_segment(segment, "part name")


def publish(
    board: Blackboard, partition: Partition, parts: Mapping[str, bytes | Path | FileBelow], now: datetime, by: str = ""
) -> Update:
    """Claim an update, write its parts (contents by name) and seal it. A failure leaves no valid update.

    The claim's token begins with `by`.
    """
    for name in parts:
        check_part(name)
    update_id = claim(board, partition, f"{by}{uuid4().hex}".encode(), now)
    path = _path(partition, update_id)
    expected = [_put(board, f"{path}/{name}", data) for name, data in parts.items()]
    return seal(board, partition, update_id, expected)


def _put(board: Blackboard, key: str, data: bytes | Path | FileBelow) -> File:
    if isinstance(data, FileBelow):
        opened = data.opened()
        return _put(board, key, opened.path)
    board.put(key, data)
    return File(key, size_of(data))


def invalidate(
    board: Blackboard, partition: Partition, update_id: str, *, how: Literal["manifest", "file"] = "manifest"
) -> None:
    """Invalidate an update: remove its manifest, or add an empty file to make its count wrong.

    A second call changes nothing. With `file`, an invalid update with files is not changed: one more file could make it
    valid.
    """
    path = _path(partition, update_id)
    manifest, files = board.get(f"{path}/{MANIFEST}", MANIFEST_LIMIT + 1), listed(board, partition, update_id)
    if manifest is None and not files:
        raise NoValidUpdate(f"There is nothing at {path}/: no update to invalidate. See `feed-assets feed show`.")
    # Without its manifest, an update without files would vanish, so leave an empty file for a second call to find.
    # But add no file if the manifest contains 1, because the update would be valid until its manifest is removed.
    leaves_a_file = not files and manifest is not None and parse_manifest(manifest) != 1
    if (how == "file" and why_invalid(manifest, files) is None) or leaves_a_file:
        _add_empty_file(board, path, files)
    if how == "manifest":
        board.delete([f"{path}/{MANIFEST}"])


def revalidate(board: Blackboard, recorded: Update) -> None:
    """Make an invalidated update valid again, if its files equal the recorded ones (names, sizes, etags).

    An extra empty file is removed. At the end, a missing or wrong manifest is written, which makes the update valid.
    After a kill before this write, another call completes the work. Raise NotRevalidated, with the differences, if the
    files differ.
    """
    path, content = recorded.path, str(len(recorded.files)).encode()
    manifest, files = (
        board.get(f"{path}/{MANIFEST}", MANIFEST_LIMIT + 1),
        listed(board, recorded.partition, recorded.id),
    )
    marks = [file.key for file in files if file.size == 0 and file.key not in {each.key for each in recorded.files}]
    _refuse_altered(recorded, [file for file in files if file.key not in marks])
    if manifest not in (None, content):  # A wrong count could become right for a moment while extra files are removed.
        board.delete([f"{path}/{MANIFEST}"])
    board.delete(marks)
    if manifest != content:
        board.put(f"{path}/{MANIFEST}", content)


def _refuse_altered(recorded: Update, files: Sequence[File]) -> None:
    current, published = {file.key: file for file in files}, {file.key: file for file in recorded.files}
    gone, added = sorted(published.keys() - current.keys()), sorted(current.keys() - published.keys())
    other = sorted(key for key in published.keys() & current.keys() if published[key] != current[key])
    differences = {"gone": gone, "not recorded": added, "of another size or etag": other}
    problems = "; ".join(f"{what}: {', '.join(keys[:3])}" for what, keys in differences.items() if keys)
    if problems:
        raise NotRevalidated(
            f"{recorded.path} is not what was published: expected exactly the {len(published)} files that the ledger "
            f"recorded; {problems}. Publish the data again as a new update."
        )


def _add_empty_file(board: Blackboard, path: str, files: Sequence[File]) -> None:
    existing_keys = {file.key for file in files}
    names = (f"{path}/_invalidated-{number}" for number in range(len(existing_keys) + 1))
    board.put(next(name for name in names if name not in existing_keys), b"")


def _path(partition: Partition, update_id: str) -> str:
    if not is_update_id(update_id):
        raise InvalidName(f"{update_id!r} is not an update id: expected YYYYMMDD.HHMMSS, a moment that exists.")
    return f"{partition.path}/{update_id}"


def size_of(data: bytes | Path) -> int:
    """Return the size of a part in bytes."""
    return data.stat().st_size if isinstance(data, Path) else len(data)


def _refuse_unfinished(path: str, expected: Sequence[File]) -> None:
    """Raise UpdateAbandoned for names of dead jobs, names that Spark ignores, and names that obstore cannot read."""
    for file in expected:
        name = file.key.removeprefix(f"{path}/")
        if name == file.key or _UNFINISHED.search(name):
            raise UpdateAbandoned(
                f"{file.key} cannot be part of {path}: expected a key below this folder without '_temporary', with no "
                "segment that begins with '.' or '_', and no name that ends in '#' and digits. Write the update "
                "again under another id."
            )


def _clear_half_written(board: Blackboard, path: str, expected: Sequence[File]) -> None:
    """Remove leftovers of our own killed put (local disk only). Leftovers of other writers still count as files."""
    own_keys = {f"{path}/{MANIFEST}", *(file.key for file in expected)}
    half_written = board.half_written(path)
    board.delete([file.key for file in half_written if HALF_WRITTEN.sub("", file.key) in own_keys])


def _refuse_differences(path: str, expected: Sequence[File], files: Sequence[File]) -> None:
    written, present = {(file.key, file.size) for file in expected}, {(file.key, file.size) for file in files}
    if written != present or len(expected) != len(files):
        foreign, missing = sorted(present - written)[:3], sorted(written - present)[:3]
        raise UpdateAbandoned(
            f"{path} does not hold exactly the {len(expected)} files that were written: not written by this job "
            f"{foreign}, missing or altered {missing}. Claim another id and write again."
        )
