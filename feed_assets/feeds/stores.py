"""The obstore stores behind the URLs of blackboards."""

from dataclasses import dataclass
from datetime import timedelta
from os import environ
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

import obstore.store
from obstore.store import LocalStore, MemoryStore, ObjectStore, S3Store

from feed_assets.core.errors import BlackboardMissing, BlackboardRefused, InvalidName

if TYPE_CHECKING:
    from obstore.store import BackoffConfig, RetryConfig, S3CredentialProvider


@dataclass(frozen=True)
class RequestLimits:
    """Limits of one request. A sensor tick has 20 seconds, while obstore's default is three minutes.

    `timeout` limits one try, and `backoff` is the pause before the second try, both in seconds. A request that has
    taken `retried_for` seconds is not tried again.
    """

    retries: int = 2
    timeout: float = 30
    backoff: float = 0.1
    retried_for: float = 5

    @property
    def retry_config(self) -> "RetryConfig":
        """Return the retries in obstore's form."""
        first = timedelta(seconds=self.backoff)
        backoff: BackoffConfig = {"init_backoff": first, "max_backoff": timedelta(seconds=5), "base": 2}
        return {"max_retries": self.retries, "retry_timeout": timedelta(seconds=self.retried_for), "backoff": backoff}


PATIENCE = RequestLimits()

_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3")
"""Variables from which obstore itself takes an endpoint."""


def store_at(url: str, patience: RequestLimits = PATIENCE) -> ObjectStore:
    """Return the store at `memory://`, `gs://bucket` or `az://account/container`."""
    scheme = urlsplit(url).scheme
    if scheme == "memory":
        return MemoryStore()
    if scheme in ("az", "gs"):  # This is not tested. obstore documents the variables that configure these stores.
        return obstore.store.from_url(url, retry_config=patience.retry_config)
    raise InvalidName(
        f"{url!r} is not the URL of a blackboard: expected a URL that begins with file://, s3://, az://, gs:// or memory://."
    )


THEIRS = "It belongs to another team: mount it, ask its owner, or correct FEED_ASSETS_BLACKBOARDS."
"""The advice if another team's blackboard is missing."""


def titled(url: str, name: str) -> str:
    """Return a blackboard's title for errors."""
    return f"{url} (the blackboard {name!r})" if name else url


def local_store(url: str, root: Path, create: bool, name: str = "") -> LocalStore:
    """Return the store in the folder `root`, which must exist unless `create`. Another team's store has a `name`."""
    title = titled(url, name)
    if root.exists() and not root.is_dir():
        raise BlackboardMissing(f"{title} is a file: expected a folder. Give the folder that holds the feeds.")
    if not root.exists() and not create:
        advice = (
            "Create it, or correct the URL. (`feed-assets run` and `feed publish` make the one in the home folder.)"
        )
        raise BlackboardMissing(f"No blackboard at {title}: the folder does not exist. {THEIRS if name else advice}")
    return LocalStore(root, mkdir=create)


def local_root(url: str) -> Path | None:
    """Return the folder of a `file://` URL. Return None for other URLs."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return None
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise InvalidName(f"{url!r} does not name a folder of this machine: expected file:///an/absolute/path.")
    return Path(url2pathname(parts.path))


def local_address(root: Path) -> str:
    """Return the address of a folder: its host, device and inode. Two hosts may have different folders at one path."""
    status = root.stat()
    return f"{gethostname()}:{status.st_dev}:{status.st_ino}"


def s3_region(provider: "S3CredentialProvider") -> str:
    """Return the region of the credentials, by default us-east-1."""
    return getattr(provider, "config", {}).get("region") or "us-east-1"


def _is_plain(endpoint: str | None) -> bool:
    """Return whether S3 is reached by plain HTTP. If not, the caller forbids redirects to plain HTTP."""
    endpoints = [endpoint] if endpoint else [environ.get(name, "") for name in _ENDPOINTS]
    return any(each.lower().startswith("http://") for each in endpoints)


def s3_store(url: str, endpoint: str | None, provider: "S3CredentialProvider", patience: RequestLimits) -> S3Store:
    """Return the store at `s3://bucket[/prefix]`."""
    region = s3_region(provider)
    return S3Store.from_url(
        url,
        config={"endpoint": endpoint, "region": region} if endpoint else {"region": region},
        client_options={"allow_http": _is_plain(endpoint), "timeout": timedelta(seconds=patience.timeout)},
        retry_config=patience.retry_config,
        credential_provider=provider,
    )


def s3_credentials(url: str, profile: str | None = None) -> "S3CredentialProvider":
    """Return the credentials of a boto3 profile, by default those of boto3's chain."""
    # Imported here: boto3 takes 0.3 s, and local blackboards do not need it.
    from boto3 import Session  # pyright: ignore[reportMissingTypeStubs]
    from botocore.exceptions import BotoCoreError  # pyright: ignore[reportMissingTypeStubs]
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        return Boto3CredentialProvider(Session(profile_name=profile))
    except (BotoCoreError, ValueError) as error:
        advice = (
            f"Put the profile {profile!r} into the files of AWS"
            if profile
            else ("Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
        )
        raise BlackboardRefused(
            f"No AWS credentials for {url}: boto3 says {error}. {advice}, or run where a role gives them."
        ) from error
