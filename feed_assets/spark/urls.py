"""Paths by which Spark (Hadoop) finds an object, made from a blackboard's URL and the object's key."""

import re
from urllib.parse import urlsplit

from feed_assets.core.errors import InvalidName
from feed_assets.feeds.stores import local_root

_GLOB = re.compile(r"([\[\]{}*?\\])")
_SCHEME = re.compile(r"^[a-z0-9]+://")


def spark_path(board_url: str, key: str) -> str:
    """Return the Hadoop path of an object, such as `file:///…` or `s3a://bucket/…`.

    Paths for `az://account/container` and `gs://` are untested. A `file://` URL is decoded, because Hadoop does not
    decode `%20` in a path. Raise InvalidName for `memory://`, which only this process can see.
    """
    root = _root(board_url)
    return f"{root}/{key}" if key else root


def escaped(path: str) -> str:
    """Return a path for Spark's reader, which reads each path as a glob pattern.

    So `[`, `{`, `*` and the like are escaped. Raise InvalidName for a path that also has a colon. In a pattern, Hadoop
    reads the text before a colon as a scheme.
    """
    if _GLOB.search(path) and ":" in _SCHEME.sub("", path):
        raise InvalidName(
            f"{path} has ':' and a character of patterns ([ ] {{ }} * ? \\), and Hadoop cannot open such a file. "
            "Expected at most one of the two. Publish the part under another name."
        )
    return _GLOB.sub(r"\\\1", path)


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
                "Spark cannot see this process's memory: use a file:// URL."
            )
