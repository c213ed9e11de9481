"""The blackboard: one object store. Only this module hides the differences between obstore's stores.

docs/file-feed.md has a table of the measured differences. Each method names the difference that it hides.
"""

import logging
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Self

from obstore import exceptions

from feed_assets.core.errors import BlackboardMissing, BlackboardRefused, BlackboardUnavailable, InvalidName
from feed_assets.core.feeds import UNREADABLE, File
from feed_assets.core.message_words import shortened
from feed_assets.feeds import local_disk, stores
from feed_assets.feeds.answers import answers_of
from feed_assets.feeds.object_keys import checked
from feed_assets.feeds.store_clients import OBJECTS_PER_PAGE, LocalClient, ObstoreClient, Page, StoredObject

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import S3CredentialProvider

    from feed_assets.feeds.s3_pages import S3Pages

_REFUSED = re.compile(r"status code: 40[13]\b|<Code>AccessDenied</Code>|code: AccessDenied|Permission denied")
_MISSING = re.compile(r"<Code>(NoSuchBucket|ContainerNotFound)</Code>|specified bucket does not exist")
# On local disk, obstore cannot read names that end in `#<digits>`.
_UNREADABLE = re.compile(r"Filenames containing trailing")

_BYTES_PER_CHUNK = 1 << 20
"""Number of bytes that arrive together. obstore's default is 10 MiB, and all of them are lost if the last ones fail."""


class Blackboard:
    """The store that holds the feeds. Keys have no slash at either end."""

    def __init__(
        self, url: str, client: ObstoreClient, root: Path | None = None, pages: "S3Pages | None" = None, name: str = ""
    ) -> None:
        self.url = url
        self.title = stores.titled(url, name)
        self._theirs = stores.THEIRS if name else ""
        self._client = client
        self._root = root
        self._pages = pages

    @classmethod
    def open(
        cls,
        url: str,
        *,
        endpoint: str | None = None,
        credentials: "S3CredentialProvider | None" = None,
        create: bool = False,
        patience: stores.RequestLimits = stores.PATIENCE,
        name: str = "",
    ) -> Self:
        """Open the blackboard at a URL. By default S3 credentials come from boto3's chain.

        `create` makes the folder of a `file://` URL. Each `memory://` is a new, empty store. Only another team's
        blackboard has a `name`. Such a blackboard is read-only, and its errors contain the name.
        """
        if root := stores.local_root(url):
            return cls(url, LocalClient(stores.local_store(url, root, create, name), root), root, name=name)
        if not url.startswith("s3:"):
            return cls(url, ObstoreClient(stores.store_at(url, patience)), name=name)
        from feed_assets.feeds.s3_others import OthersClient  # This imports boto3, which local blackboards do not need.
        from feed_assets.feeds.s3_pages import S3Pages

        provider = credentials or stores.s3_credentials(url)
        store = stores.s3_store(url, endpoint, provider, patience)
        pages = S3Pages(url, endpoint, provider, patience, answers_of(url, endpoint) if name else None)
        return cls(url, OthersClient(store, pages) if name else ObstoreClient(store), pages=pages, name=name)

    @property
    def is_paged(self) -> bool:
        """Return whether names are listed in pages, so that a long listing costs more than one request."""
        return self._pages is not None

    @property
    def is_local(self) -> bool:
        """Return whether this is a folder, which is read twice almost for free."""
        return self._root is not None

    @property
    def address(self) -> str:
        """Return the store's address, which is equal in all processes. Return '' if the store has none."""
        with self._translated("find the address"):
            return stores.local_address(self._root) if self._root else self._pages.address if self._pages else ""

    def children(self, prefix: str) -> list[str]:
        """Return the names of the common prefixes one level under `prefix`, sorted; [] if there is no such prefix.

        A name does not prove that data exist: folders on local disk and SeaweedFS outlive their objects.
        """
        return sorted(self.names(prefix))

    def names(self, prefix: str) -> Sequence[str]:
        """Return the names of `children`, unsorted: sorting 100,000 names takes a third of the time of listing them."""
        with self._translated(f"list {prefix}/", prefix, is_folder=True):
            try:
                return self._client.children(prefix or None)
            except exceptions.InvalidPathError:
                if self._pages is None:
                    raise
                return self._pages.names(prefix)

    def page(self, prefix: str, after: str = "") -> Page:
        """Return a page of the names one level under `prefix` that follow `after`.

        If the store has no pages, return all names. As with `children`, a name does not prove that data exist.
        """
        return self.pager(prefix)(after)

    def pager(self, prefix: str) -> Callable[[str], Page]:
        """Return the function that returns the pages of one search.

        In another team's bucket, the whole search has a time limit.
        """
        pages = self._pages.listing() if self._pages and self._theirs else self._pages

        def page(after: str) -> Page:
            if pages is None:
                return Page(tuple(name for name in self.children(prefix) if name > after), is_last=True)
            with self._translated(f"list {prefix}/", prefix, is_folder=True):
                return pages(prefix, after)

        return page

    def files(self, prefix: str) -> tuple[File, ...]:
        """Return every object below `prefix`, recursively, sorted by key: the stores list in different orders.

        The directory marker of `prefix` is left out. obstore lists this empty object under the key `prefix`.
        """
        with self._translated(f"list {prefix}/", prefix, is_folder=True):
            return tuple(sorted(_file(meta) for meta in self._objects(prefix) if meta["path"] != prefix))

    def files_from(self, prefix: str, first: str) -> tuple[File, ...]:
        """Return the finished objects below `prefix` from the key `first` on, sorted.

        On S3 this takes one request for each 1,000 objects. SeaweedFS lists the folder `10/…` before the file `10.csv`,
        other stores after it: do not mix such names.
        """
        with self._translated(f"list {prefix}/", prefix, is_folder=True):
            metas = self._objects(prefix, first[:-1])  # Stores list only keys after a given key.
            listed = [_file(meta) for meta in metas if meta["path"] != prefix and meta["path"] >= first]
        if odd := [file.key for file in listed if UNREADABLE in file.key]:
            _log.warning(
                "%s: %s is not a valid key on every store. It is skipped: rename it.", self.title, shortened(odd, 3)
            )
        return tuple(sorted(file for file in listed if file.key not in odd and not self._is_unfinished(file.key)))

    def file_pages(self, begins: str, after: str = "") -> Iterator[tuple[File, ...]]:
        """Yield the finished objects whose keys begin with `begins` and follow `after`, sorted, in pages.

        On S3 a page is one request, sent when the caller asks for the page. Keys with another beginning cost nothing.
        Other stores list the whole folder of `begins`. In keys, UNREADABLE replaces invalid characters.
        """
        with self._translated(f"list {begins}*", begins.rpartition("/")[0], is_folder=True):
            pages = self._pages.object_pages(begins, after) if self._pages else self._cut(begins, after)
            for page in pages:
                files = sorted(_file(meta) for meta in page if not meta["path"].endswith("/"))
                yield tuple(file for file in files if not self._is_unfinished(file.key))

    def _cut(self, begins: str, after: str) -> "Iterator[list[ObjectMeta]]":
        """Split a complete listing of the store into pages."""
        metas = self._objects(begins.rpartition("/")[0], after)
        matching = sorted((meta for meta in metas if meta["path"].startswith(begins)), key=lambda meta: meta["path"])
        yield from (matching[at : at + OBJECTS_PER_PAGE] for at in range(0, len(matching), OBJECTS_PER_PAGE))

    def page_of_files(self, prefix: str, first: str, last: str = "") -> tuple[File, ...] | None:
        """Return the objects below `prefix` from the key `first` on. Return None if one request is not enough.

        On local disk, at most OBJECTS_PER_PAGE files are listed, as in one request elsewhere. Folders after `last` are
        skipped.
        """
        with self._translated(f"list {prefix}/", prefix, is_folder=True):
            try:
                if self._root:
                    page = [*islice(local_disk.objects(self._root, prefix, first[:-1], last), OBJECTS_PER_PAGE)]
                else:
                    page = next(iter(self._client.list(prefix, first[:-1])), ())
            except exceptions.InvalidPathError:  # obstore cannot list such a key.
                return None
        is_last = len(page) < OBJECTS_PER_PAGE
        return tuple(file for file in map(_file, page) if file.key >= first) if is_last else None

    def last_write(self, prefix: str) -> datetime | None:
        """Return when an object below `prefix` was last written, by the store's clock; None if there is no object."""
        with self._translated(f"list {prefix}/", prefix, is_folder=True):
            return max((meta["last_modified"] for meta in self._objects(prefix)), default=None)

    def _objects(self, prefix: str, after: str = "") -> "list[ObjectMeta]":
        """Return the objects below a prefix. If obstore fails on a character of a key on S3, list by boto3."""
        try:
            return [meta for page in self._client.list(prefix or None, after or None) for meta in page]
        except exceptions.InvalidPathError:
            if self._pages is None:
                raise
            return self._pages.objects(prefix, after)

    def is_of_one_moment(self, listing: Sequence[File]) -> bool:
        """Return whether a listing is a snapshot of one moment.

        A listing on local disk, or of several pages, is not: its parts are read one after another.
        """
        return self._root is None and len(listing) <= OBJECTS_PER_PAGE

    def half_written(self, prefix: str) -> tuple[File, ...]:
        """Return the files that a killed writer left on local disk. obstore hides these files, other readers do not."""
        if not self._root:
            return ()
        with self._translated(f"list {prefix}/", prefix, is_folder=True):
            metas = local_disk.objects(self._root, prefix)
            return tuple(sorted(_file(meta) for meta in metas if self._is_unfinished(meta["path"])))

    def _is_unfinished(self, key: str) -> bool:
        return bool(self._root and local_disk.HALF_WRITTEN.search(key))

    def no_files(self, prefix: str, *, below: bool) -> list[tuple[str, str]]:
        """Return (key, kind) of the links, FIFOs, sockets and devices of a folder. With `below` search subfolders, too.

        Only local disk has such files.
        """
        if not self._root:
            return []
        with self._translated(f"list {prefix}/", prefix, is_folder=True):
            return local_disk.no_files(self._root, prefix, below=below)

    def get(self, key: str, limit: int | None = None) -> bytes | None:
        """Return the bytes of an object, at most the first `limit` bytes. Return None if the object does not exist."""
        with self._translated(f"read {key}", key):
            stored = self._stored(key)
            if stored is None:
                return None
            # A range request fails for an empty object, so stream the body, and ignore the bytes after `limit`.
            return bytes(stored.bytes()) if limit is None else _first(stored.stream(max(limit, 1)), limit)

    def stream(self, key: str, start: int = 0) -> tuple[File, Iterator[bytes]] | None:
        """Return an object's metadata, and its bytes in chunks. Return None if the object does not exist.

        The bytes begin at `start`, which must be below the object's size.
        """
        with self._translated(f"read {key}", key):
            stored = self._stored(key, start)
        return (_file(stored.meta), self._chunks(key, stored)) if stored else None

    def part(self, key: str, start: int, length: int) -> tuple[File, bytes] | None:
        """Return an object's metadata, and `length` of its bytes. Return None if the object does not exist.

        The bytes begin at `start`, which must be below the object's size.
        """
        with self._translated(f"read {key}", key):
            stored = self._stored(key, start, length)
            return (_file(stored.meta), bytes(stored.bytes())) if stored else None

    def file(self, key: str) -> File | None:
        """Return the metadata of an object, by one HEAD. Return None if it does not exist."""
        with self._translated(f"look at {key}", key):
            try:
                return _file(self._client.head(key))
            except FileNotFoundError as error:
                if _MISSING.search(str(error)):
                    raise
                return None
            except NotADirectoryError:  # On local disk, a part of the key's path is a file, not a folder.
                return None

    def put(self, key: str, data: bytes | Path) -> None:
        """Write or overwrite an object atomically."""
        self._refuse_write(key)
        with self._translated(f"write {key}", key):
            self._client.put(key, data, create=False)

    def put_chunks(self, key: str, chunks: Iterable[bytes], part: int | None = None) -> str:
        """Write or overwrite an object from chunks atomically, and return its etag.

        Without `part` it is sent in one request, otherwise in parts of so many bytes. If `chunks` raises, nothing is
        written.
        """
        self._refuse_write(key)
        with self._translated(f"write {key}", key):
            return self._client.put_chunks(key, chunks, part)

    def is_encrypted_by_key(self, key: str) -> bool:
        """Return whether S3 encrypts an object with a key of KMS or of its owner, so that its etag is no MD5."""
        with self._translated(f"look at {key}", key):
            return self._pages is not None and self._pages.is_encrypted_by_key(key)

    def copied_from(self, source: "Blackboard", file: File) -> str | None:
        """Let the store copy an object of another blackboard to the same key here, if one S3 service holds both.

        Return its etag. Return None if nothing was copied, also if the store refuses: then the bytes must be sent.
        """
        self._refuse_write(file.key)
        if self._pages is None or source._pages is None:
            return None
        with self._translated(f"write {file.key}", file.key):
            return self._pages.copied_from(source._pages, file.key, file.etag)

    def create(self, key: str, data: bytes) -> bool:
        """Write an object unless it exists. Return False if it does. This is atomic between processes."""
        self._refuse_write(key)
        with self._translated(f"create {key}", key):
            try:
                self._client.put(key, data, create=True)
            except (exceptions.AlreadyExistsError, FileExistsError):
                return False
            return True

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects. Missing objects are not an error."""
        keys = list(keys)
        self._refuse_write(*keys[:3])
        with self._translated(f"delete {', '.join(keys[:3])}", *keys):
            if keys:
                self._client.delete(keys)

    def sweep(self, prefix: str) -> int:
        """Remove everything under `prefix`, on local disk also empty folders. Return the number of removed objects."""
        self._refuse_write(prefix)
        if not self._root:
            files = self.files(checked(prefix))
            self.delete(file.key for file in files)
            return len(files)
        with self._translated(f"delete {prefix}/", prefix):
            return local_disk.sweep(self._root, prefix)

    def _refuse_write(self, *keys: str) -> None:
        """Raise BlackboardRefused if this blackboard belongs to another team (ADR 68)."""
        if self._theirs:
            raise BlackboardRefused(
                f"{self.title}: {', '.join(keys)} is not changed, because this blackboard belongs to another team. "
                "Have its owner change it."
            )

    def download(self, key: str, target: Path, listed: File | None = None) -> File | None:
        """Copy an object into the file `target`. Return its metadata, or None if it does not exist.

        If the object differs from `listed`, it is not copied, because it may be too large.
        """
        if (opened := self.stream(key)) is None:
            return None
        served, chunks = opened
        if listed and served != listed:
            return served
        with TemporaryDirectory(dir=target.parent, prefix=".") as unfinished:
            with (copy := Path(unfinished, "copy")).open("wb") as file:
                file.writelines(chunks)
            copy.rename(target)
        return served

    def _chunks(self, key: str, stored: "StoredObject") -> Iterator[bytes]:
        # This is a separate generator, so that only the store's errors are translated. The caller's own errors, such as
        # a full disk, are not.
        with self._translated(f"read {key}", key):
            yield from stored.stream(_BYTES_PER_CHUNK)

    def _stored(self, key: str, start: int = 0, length: int = 0) -> "StoredObject | None":
        try:
            if length:
                return self._client.part(key, start, length)
            return self._client.get(key, start) if start else self._client.get(key)
        except FileNotFoundError as error:
            if _MISSING.search(str(error)):
                raise
            return None
        except NotADirectoryError:  # On local disk, a part of the key's path is a file, not a folder.
            return None

    @contextmanager
    def _translated(self, action: str, *keys: str, is_folder: bool = False) -> Generator[None]:
        """Translate obstore's errors into ours.

        The text of obstore's error decides which error is raised, because the class of the error often does not say
        what failed. Every key is checked here, so no key leads out of the blackboard. The folder '' is the blackboard
        itself.
        """
        for key in keys:
            if key or not is_folder:
                checked(key)
        # obstore treats a missing folder (an unmounted disk) as an empty one, and a write would create it.
        if self._root and not self._root.is_dir():
            advice = self._theirs or "Mount or create it again."
            raise BlackboardMissing(f"Cannot {action}: the folder of {self.title} is gone. {advice}")
        try:
            yield
        except (exceptions.BaseError, OSError, ValueError) as error:
            raise self._error(action, error) from error

    def _error(self, action: str, error: Exception) -> Exception:
        message = " ".join(str(error).split("\n\nDebug source", 1)[0].split())
        where = f"Cannot {action} on {self.title}"
        if isinstance(error, (exceptions.InvalidPathError, ValueError)) or _UNREADABLE.search(message):
            return InvalidName(f"{where}: a key that is not valid on every store ({message}). Rename or remove it.")
        if isinstance(error, (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)):
            return BlackboardRefused(f"{where}: access refused ({message}). Check the credentials and their rights.")
        if _MISSING.search(message):
            advice = self._theirs or "Create it, or correct the URL."
            return BlackboardMissing(f"{where}: there is no such bucket ({message}). {advice}")
        if _REFUSED.search(message):
            return BlackboardRefused(f"{where}: access refused ({message}). Check the credentials and their rights.")
        return BlackboardUnavailable(f"{where}: the store failed ({message}). Check the endpoint, then try again.")


def _first(chunks: Iterable[bytes], limit: int) -> bytes:
    """Return the first `limit` bytes of a body. A store may send more than it announced, or one byte at a time."""
    data = bytearray()
    for chunk in chunks if limit else ():
        data += chunk
        if len(data) >= limit:
            break
    return bytes(data[:limit])


def _file(meta: "ObjectMeta") -> File:
    return File(meta["path"], meta["size"], meta["e_tag"] or "", meta["last_modified"])
