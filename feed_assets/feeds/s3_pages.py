"""Pages of names on S3, from any name on. obstore can only list all names, or all objects after a key."""

import inspect
from collections.abc import Iterator, Mapping
from copy import copy
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import boto3  # pyright: ignore[reportMissingTypeStubs]
from botocore.config import Config  # pyright: ignore[reportMissingTypeStubs]
from botocore.exceptions import BotoCoreError, ClientError  # pyright: ignore[reportMissingTypeStubs]
from botocore.parsers import ResponseParserError  # pyright: ignore[reportMissingTypeStubs]

from feed_assets.core.errors import BlackboardRefused
from feed_assets.core.feeds import UNREADABLE
from feed_assets.core.limits import REASON_BYTES, excerpt
from feed_assets.feeds.answers import Answers
from feed_assets.feeds.local_disk import readable
from feed_assets.feeds.store_clients import Page
from feed_assets.feeds.stores import RequestLimits, s3_region

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import S3CredentialProvider

_REQUESTS = ("ListObjectsV2", "GetObject", "HeadObject")
"""The requests of this module, by the names that botocore's events use."""

EMPTY_PAGES = 100
"""Most consecutive empty pages in a listing. A store may return some empty pages, but not endless ones."""

LARGEST = 1 << 50
"""Maximum size that is recorded for an object, in bytes, because ledgers hold sums of sizes. S3 itself allows 50 TB."""

ETAG_BYTES = 200
"""Maximum number of bytes of an etag. Longer etags are shortened in such a way that equal etags stay equal."""

_Keys = tuple[str, str, str | None]


class S3Pages:
    """Listings of a blackboard on S3, with the credentials, endpoint and limits of its store.

    For another team's blackboard, `answers` limits the time of each request, and of each whole listing.
    """

    def __init__(
        self,
        url: str,
        endpoint: str | None,
        provider: "S3CredentialProvider",
        patience: RequestLimits,
        answers: Answers | None = None,
    ) -> None:
        parts = urlsplit(url)
        self._bucket, self._root = parts.netloc, parts.path.strip("/")
        self._endpoint, self._provider, self._patience = endpoint, provider, patience
        self._answers = answers
        self._ends = float("inf")
        self._made = dict[_Keys, Any]()
        """The client with the current credentials. This object shares it with all copies that `listing` returns."""

    @property
    def address(self) -> str:
        """Return endpoint, bucket and prefix."""
        return f"{self._client().meta.endpoint_url}/{self._bucket}/{self._root}"

    def listing(self) -> Self:
        """Return the object to use for one listing that begins now.

        This is the object itself, or for another team's bucket a copy with a time limit.
        """
        if self._answers is None:
            return self
        limited = copy(self)
        limited._ends = self._answers.listing_ends()
        return limited

    def __call__(self, prefix: str, after: str) -> Page:
        """Return up to 1,000 names one level under `prefix`, after the name `after`. Raise OSError with S3's code."""
        below, names = self._below(prefix), list[str]()
        # `/~` sorts after all keys of the update `after`. With `after` alone, AWS lists this update, but SeaweedFS does
        # not.
        for page in self._pages(below, after and f"{below}{after}/~", Delimiter="/"):
            names += _names(page, below)
            # The next call begins after the last name. So each page needs a last name, and this name must be a real
            # key, without replaced characters.
            if names and UNREADABLE not in names[-1]:
                return Page(tuple(names), not page["IsTruncated"])
        return Page(tuple(names), is_last=True)

    def names(self, prefix: str) -> list[str]:
        """Return all names one level under `prefix`. Names with unreadable characters are changed as in `readable`."""
        below = self._below(prefix)
        return [name for page in self.listing()._pages(below, Delimiter="/") for name in _names(page, below)]

    def objects(self, prefix: str, after: str) -> "list[ObjectMeta]":
        """Return all objects below `prefix` whose keys follow `after`, in obstore's form."""
        return [each for page in self.object_pages(f"{prefix}/" if prefix else "", after) for each in page]

    def object_pages(self, begins: str, after: str) -> "Iterator[list[ObjectMeta]]":
        """Yield pages of the objects whose keys begin with `begins` and follow `after`: one request for each page.

        All pages together have no time limit, because lazy callers choose when to stop. Only a copy that `listing` made
        limits the time of all pages.
        """
        above = self._below("")
        for page in self._pages(f"{above}{begins}", after and f"{above}{after}"):
            yield [
                stored_meta(
                    "/".join(map(readable, each["Key"].removeprefix(above).rstrip("/").split("/"))),
                    each["Size"],
                    each["ETag"],
                    each["LastModified"],
                )
                for each in page.get("Contents", [])
            ]

    def _below(self, prefix: str) -> str:
        return "".join(f"{part}/" for part in (self._root, prefix) if part)

    def _pages(self, below: str, after: str = "", **request: str) -> Iterator[dict[str, Any]]:
        place, empty = {"StartAfter": after} if after else {}, 0
        while True:
            yield (
                page := _checked_page(
                    self._answer("list_objects_v2", Bucket=self._bucket, Prefix=below, **request, **place)
                )
            )
            if not page["IsTruncated"]:
                return
            empty = 0 if page.get("Contents") or page.get("CommonPrefixes") else empty + 1
            if empty > EMPTY_PAGES:
                raise OSError(f"{EMPTY_PAGES} pages without a name, and more to come")
            place = {"ContinuationToken": page["NextContinuationToken"]}

    def object(self, key: str, span: str | None) -> dict[str, Any]:
        """Return S3's answer for an object, or a range of its bytes. The body is read later."""
        return self._answer("get_object", **self._named(key), **({"Range": span} if span else {}))

    def head(self, key: str) -> dict[str, Any]:
        """Return S3's answer for an object without its bytes."""
        return self._answer("head_object", **self._named(key))

    def is_encrypted_by_key(self, key: str) -> bool:
        """Return whether S3 encrypts an object with a key of KMS or of its owner. Then its etag is no MD5."""
        answer = self.head(key)
        return "SSECustomerAlgorithm" in answer or str(answer.get("ServerSideEncryption")).startswith("aws:kms")

    def copied_from(self, source: "S3Pages", key: str, etag: str) -> str | None:
        """Let S3 copy an object of another bucket, or prefix, to the same key here. Return its etag.

        Return None if another service holds it, if it does not have this etag, or if S3 refuses.
        """
        if source._client().meta.endpoint_url != self._client().meta.endpoint_url:
            return None
        place: dict[str, Any] = {"CopySource": source._named(key), "CopySourceIfMatch": etag}
        try:
            answer = self._answer("copy_object", **self._named(key), **place)
        except OSError:
            return None
        copied = str(answer.get("CopyObjectResult", {}).get("ETag") or "").strip('"')
        return f'"{copied}"' if copied else None  # In listings it has quotes, but not in every store's answer.

    def _named(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._below('')}{key}"}

    def _answer(self, request: str, **parameters: Any) -> dict[str, Any]:
        """Return S3's answer. Raise FileNotFoundError if the object is missing, otherwise OSError with S3's code."""
        ask = partial(getattr(self._client(), request), **parameters)
        try:
            return self._answers.within(ask, self._ends) if self._answers else ask()
        except (
            BotoCoreError,
            ClientError,
            ResponseParserError,
            RuntimeError,
            ValueError,
        ) as error:  # For invalid headers and times, botocore raises ValueError or RuntimeError.
            response: dict[str, Any] = getattr(error, "response", None) or {}  # An error by timeout has no response.
            code = str(response.get("Error", {}).get("Code", "none"))[:100]
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", "none")
            kind = FileNotFoundError if code in ("NoSuchKey", "404") else OSError
            text = excerpt(str(error), REASON_BYTES)  # The text may contain the whole answer.
            raise kind(f"{text} (status code: {status}, <Code>{code}</Code>)") from error

    def _client(self) -> Any:
        """Return a client with the current credentials. Create a new client when they have been renewed."""
        try:
            credentials = self._provider()
        except Exception as error:
            raise BlackboardRefused(f"No credentials for {self._bucket}: {error}. Renew them.") from error
        if inspect.isawaitable(credentials):
            raise TypeError("S3 credentials: expected a function that returns them, found a coroutine.")
        keys = (credentials["access_key_id"], credentials["secret_access_key"], credentials.get("token"))
        if (client := self._made.get(keys)) is None:
            client = self._connect(*keys)
            self._made.clear()
            self._made[keys] = client
        return client

    def _connect(self, access_key: str, secret_key: str, token: str | None) -> Any:
        connect: Any = boto3.client  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        timeout = self._patience.timeout
        retries = {"mode": "standard", "total_max_attempts": self._patience.retries + 1}
        style = {"addressing_style": "path"}  # obstore also puts the bucket's name into the path.
        client = connect(
            "s3",
            endpoint_url=self._endpoint,
            region_name=s3_region(self._provider),
            aws_access_key_id=access_key,
            aws_secret_access_key=secret_key,
            aws_session_token=token,
            config=Config(connect_timeout=timeout, read_timeout=timeout, retries=retries, s3=style),
        )
        # Register by the request's name: such a handler runs before botocore's own handlers, which are for all
        # requests.
        for request in _REQUESTS:
            client.meta.events.register_first(f"before-parse.s3.{request}", _refuse_declarations)
        return client


def _refuse_declarations(response_dict: Mapping[str, Any], **_event: object) -> None:
    """Raise ResponseParserError for XML with a DOCTYPE: expat before 2.7 crashes on nested entities. S3 sends none."""
    body = response_dict.get("body")
    if isinstance(body, bytes) and b"<!DOCTYPE" in body:
        raise ResponseParserError("an answer with a DOCTYPE: expected one of S3")


def stored_meta(key: str, size: int, etag: str | None, modified: datetime) -> "ObjectMeta":
    """Return metadata in obstore's form, with a size and an etag that a ledger can store."""
    e_tag = None if etag is None else excerpt(etag, ETAG_BYTES)
    size = min(max(size, 0), LARGEST)
    return {"path": key, "last_modified": modified, "size": size, "e_tag": e_tag, "version": None}


def _checked_page(page: dict[str, Any]) -> dict[str, Any]:
    """Return a page of a listing. Raise OSError if a field is missing: another team's store may send anything."""
    lacking = {"IsTruncated"} - page.keys()
    lacking |= {"NextContinuationToken"} - page.keys() if page.get("IsTruncated") else set()
    for each in page.get("Contents", []):
        lacking |= {"Key", "LastModified", "Size", "ETag"} - each.keys()
    lacking |= {"Prefix" for each in page.get("CommonPrefixes", []) if "Prefix" not in each}
    if lacking:
        raise OSError(f"a listing without {', '.join(sorted(lacking))}")
    return page


def _names(page: dict[str, Any], below: str) -> list[str]:
    return [readable(each["Prefix"].removeprefix(below).removesuffix("/")) for each in page.get("CommonPrefixes", [])]
