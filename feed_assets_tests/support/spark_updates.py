"""Updates that Spark reads."""

from itertools import count

from feed_assets.core.feeds import Feed, Partition, Update
from feed_assets.feeds.blackboard import Blackboard

PARTITION = Partition(Feed.parse("ads/shown_raw/v1.0"), "2019-11-24/men + more")
_SECONDS = count(1)


def put_update(board: Blackboard, files: dict[str, str | bytes]) -> Update:
    """Publish a fresh update of PARTITION with these files, and return it as a reader pins it."""
    update_id = f"20191124.{next(_SECONDS):06d}"
    path = f"{PARTITION.path}/{update_id}"
    for name, content in files.items():
        board.put(f"{path}/{name}", content if isinstance(content, bytes) else content.encode())
    return Update(PARTITION, update_id, board.files(path))
