"""Bad manifests: each is judged as the table says, on every store, and every error is a named one."""

import pytest

from feed_assets.core.errors import FeedAssetsError, NoValidUpdate
from feed_assets.core.feeds import MANIFEST, MANIFEST_LIMIT, parse_update_id
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.read import history, latest, named
from feed_assets_tests.faults.manifests import BAD, GOOD, fuzzed
from feed_assets_tests.faults.ways import RIGHT, Ways, latest_by_int
from feed_assets_tests.support.counted_blackboards import MEN, NEW, OLD, write
from feed_assets_tests.support.fault_seeds import assert_caught, seeds

COUNTS = {f"20191126.06000{number}": count for number, count in enumerate((12, 2, 0))}
"""Updates, newest last, with their number of files."""


class Thrifty:
    """A client that records how many bytes of a manifest were requested."""

    def __init__(self, board: Blackboard) -> None:
        self._client, self.asked = board._client, []
        self.list, self.children, self.put = self._client.list, self._client.children, self._client.put
        self.board = Blackboard(board.url, self, board._root)

    def get(self, key, /):
        return _Body(self._client.get(key), self.asked)


class _Body:
    def __init__(self, found, asked: list[int]) -> None:
        self._found, self._asked, self.meta = found, asked, found.meta

    def bytes(self):
        self._asked.append(self.meta["size"])
        return self._found.bytes()

    def stream(self, size):
        self._asked.append(size)
        return self._found.stream(size)


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_a_bad_manifest_is_invalid_and_the_update_before_is_served(board, content):
    write(board, OLD)
    write(board, NEW, content)
    reading = latest(board, MEN)
    assert (reading.update and reading.update.id, [skipped.id for skipped in reading.skipped]) == (OLD, [NEW])
    assert "its manifest" in reading.skipped[0].reason
    with pytest.raises(NoValidUpdate, match=NEW):
        named(board, MEN, NEW)


def test_there_are_over_fifty_bad_manifests():
    assert len(set(BAD.values())) > 50


@pytest.mark.parametrize("content", [content for content in GOOD if int(content) == 2])
def test_a_manifest_that_a_shell_has_written_is_valid(board, content):
    write(board, OLD)
    write(board, NEW, content)
    reading = latest(board, MEN)
    assert (reading.update and reading.update.id, reading.skipped) == (NEW, ())
    assert named(board, MEN, NEW).id == NEW


@pytest.mark.parametrize("content", [*BAD.values(), *GOOD], ids=[*BAD, *map(str, GOOD)])
def test_reader_requests_at_most_one_byte_more_than_a_manifest_may_have(board, content):
    write(board, NEW, content)
    thrifty = Thrifty(board)
    latest(thrifty.board, MEN)
    assert max(thrifty.asked) == MANIFEST_LIMIT + 1, "whatever size the store announces"


def valid(ways: Ways, board: Blackboard) -> list[str]:
    """Return the updates that are the newest valid ones at their own moment."""
    read = [ways.latest(board, MEN, moment) for moment in _moments()]
    return [update.id for update, name in zip(read, COUNTS, strict=True) if update and update.id == name]


def _moments():
    return [parse_update_id(name) for name in COUNTS]


def judge(ways: Ways, board: Blackboard, content: bytes, said: str) -> None:
    """Put a manifest into updates of 0, 2 and 12 files. It is right as the number's text, with one newline or none."""
    for name in COUNTS:
        board.put(f"{MEN.path}/{name}/{MANIFEST}", content)
    right = [name for name, count in COUNTS.items() if content in (f"{count}".encode(), f"{count}\n".encode())]
    assert valid(ways, board) == right, f"{said}: {content!r}"


def filled(board: Blackboard) -> Blackboard:
    """Return the blackboard with the updates' files, without their manifests."""
    for name, count in COUNTS.items():
        write(board, name, None, files=[f"part-{number}" for number in range(count)])
    return board


def test_five_thousand_fuzzed_manifests_are_valid_only_as_the_text_of_the_count():
    board = filled(Blackboard.open("memory://"))
    for seed in range(5_000):
        judge(RIGHT, board, fuzzed(seed), f"seed {seed}")


@pytest.mark.parametrize("some", seeds(50, 5_000))
@pytest.mark.parametrize("store", ["local", "s3"])
def test_fuzzed_manifests_are_judged_the_same_on_other_stores(request, store, some):
    board = filled(request.getfixturevalue(f"{store}_board"))
    for seed in some:
        judge(RIGHT, board, fuzzed(seed), f"seed {seed}")


def test_fuzzed_manifests_include_valid_and_invalid_ones():
    right = sum(fuzzed(seed) in GOOD for seed in range(5_000))
    assert 500 < right < 2_500


def test_a_reader_that_takes_what_int_takes_is_caught():
    board = filled(Blackboard.open("memory://"))
    assert_caught(lambda seed: judge(Ways(latest=latest_by_int), board, fuzzed(seed), f"seed {seed}"), "seed")


def _folder(path):
    (path / MANIFEST).mkdir()


def _folder_with_a_file(path):
    _folder(path)
    (path / MANIFEST / "2").touch()


def _link_to_a_manifest(path):
    (path / "count").write_bytes(b"3")
    (path / MANIFEST).symlink_to("count")


def _link_to_itself(path):
    (path / MANIFEST).symlink_to(MANIFEST)


def _link_to_nothing(path):
    (path / MANIFEST).symlink_to("nothing")


def _part_that_is_a_loop(path):
    (path / MANIFEST).write_bytes(b"3")
    (path / "part-3").symlink_to("part-3")


def _part_that_leads_up(path):
    (path / MANIFEST).write_bytes(b"2")
    (path / "up").symlink_to(path)


def _update_that_is_a_file(path):
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
    path.touch()


ON_DISK = [
    (_folder, OLD),
    (_folder_with_a_file, OLD),
    (_link_to_a_manifest, OLD),
    (_link_to_itself, OLD),
    (_link_to_nothing, OLD),
    (_part_that_is_a_loop, OLD),
    (_part_that_leads_up, NEW),
    (_update_that_is_a_file, OLD),
]


@pytest.mark.parametrize(("make", "expected"), ON_DISK, ids=[make.__name__[1:] for make, _ in ON_DISK])
def test_links_and_folders_on_disk_affect_their_own_update_alone(local_board, tmp_path, make, expected):
    write(local_board, OLD)
    write(local_board, NEW, None)
    make(tmp_path / "black board" / MEN.path / NEW)
    update = latest(local_board, MEN).update
    assert update
    assert update.id == expected
    assert OLD in {found.id for found in history(local_board, MEN)}


def test_link_named_like_an_update_is_ignored_and_a_linked_partition_is_refused(local_board, tmp_path):
    write(local_board, OLD)
    partition = tmp_path / "black board" / MEN.path
    (partition / NEW).symlink_to(NEW)
    found = latest(local_board, MEN).update
    assert found
    assert found.id == OLD
    partition.rename(tmp_path / "elsewhere")
    partition.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FeedAssetsError, match=r"men is a symbolic link, which is not part of a feed.*Remove it"):
        latest(local_board, MEN)
