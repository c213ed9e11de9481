"""Paths by which Spark (Hadoop) finds an object, from a blackboard's URL and the object's key."""

from urllib.parse import urlsplit

from feed_assets.core.errors import InvalidName
from feed_assets.feeds.stores import local_root

NO_PATTERN: dict[str, bool | str] = {"__globPaths__": "false"}
"""Option of a reader whose paths are names, also with `[`, `{` or `*`. Spark's own readers of streams set it.

An escaped name would still be a pattern, in which Hadoop takes what stands before a colon for a scheme.
"""


def spark_path(board_url: str, key: str) -> str:
    """Return the Hadoop path of an object: `file:///…`, `s3a://bucket/…`; `az://account/container`, `gs://` untested.

    Hadoop takes a path as it is and decodes no `%20`, so a `file://` URL is decoded here.
    Raise InvalidName for `memory://`, which only this process can see.
    """
    root = _root(board_url)
    return f"{root}/{key}" if key else root


def _root(url: str) -> str:
    if folder := local_root(url):
        return "file://" + folder.as_posix().rstrip("/")
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    match parts.scheme:
        case "s3":
            return f"s3a://{parts.netloc}{path}"
        case "gs":
            return f"gs://{parts.netloc}{path}"
        case "az":
            container, _, below = path.lstrip("/").partition("/")
            return f"abfss://{container}@{parts.netloc}.dfs.core.windows.net/{below}".rstrip("/")
        case _:
            raise InvalidName(
                f"Spark cannot read a blackboard at {url!r}: expected file://, s3://, az:// or gs://. "
                "What is in this process's memory is not seen by Spark: use a file:// URL."
            )
