"""Spark's configuration for the buckets of named blackboards: each gets the endpoint and the profile of its blackboard.

Hadoop configures s3a per bucket, so everything in a bucket is read and written with the same credentials.
"""

from urllib.parse import urlsplit

from feed_assets.core.errors import InvalidSetting
from feed_assets.core.setting_types import BlackboardLocation
from feed_assets.settings import Settings

S3A = "spark.hadoop.fs.s3a"
"""Prefix of all option names of s3a."""

CREDENTIALS = ",".join(
    [
        "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
        "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
    ]
)
_PROFILE = "org.apache.hadoop.fs.s3a.auth.ProfileAWSCredentialsProvider"
_AWS = {"endpoint": "s3.amazonaws.com", "path.style.access": "false", "connection.ssl.enabled": "true"}


def buckets(settings: Settings) -> dict[str, str]:
    """Return the configuration of the buckets of named blackboards.

    Raise InvalidSetting if two blackboards use one bucket with different endpoints or profiles.
    """
    ways = {bucket: (place.endpoint, place.profile) for bucket, place in _on_s3(settings.place(None))}
    values: dict[str, str] = {}
    for name, place in _other_locations(settings).items():
        for bucket, _ in _on_s3(place):
            if ways.setdefault(bucket, (place.endpoint, place.profile)) != (place.endpoint, place.profile):
                raise InvalidSetting(
                    f"{name}: the bucket {bucket} has another endpoint or profile in "
                    "another blackboard, but Spark keeps only one of each per bucket: expected the same. Make both "
                    "equal, or move the data to a bucket of their own."
                )
            values |= _bucket(f"{S3A}.bucket.{bucket}", place, settings.s3_endpoint)
    return values


def _other_locations(settings: Settings) -> dict[str, BlackboardLocation]:
    """Return the blackboards that runs read besides our own: of other teams, and of data centers with targets."""
    boards = settings.blackboards.get_secret_value()
    locations = {f"FEED_ASSETS_BLACKBOARDS[{name!r}]": each for name, each in boards.items()}
    for name, each in settings.data_centers.get_secret_value().items():
        if each.targets:
            locations[f"FEED_ASSETS_DATA_CENTERS[{name!r}]"] = each.location
    return locations


def at_endpoint(prefix: str, endpoint: str) -> dict[str, str]:
    """Return the options to reach an S3 endpoint that is not AWS."""
    return {
        f"{prefix}.endpoint": endpoint,
        f"{prefix}.endpoint.region": "us-east-1",
        f"{prefix}.path.style.access": "true",
        f"{prefix}.connection.ssl.enabled": str(endpoint.startswith("https:")).lower(),
    }


def _bucket(prefix: str, place: BlackboardLocation, own_endpoint: str | None) -> dict[str, str]:
    """Return Spark's options for the bucket of a named blackboard.

    Set the endpoint of its blackboard. If it has none, set AWS's, but only if the default blackboard has an
    endpoint, because Spark would use that one for this bucket.
    """
    values = {f"{prefix}.{name}": value for name, value in _AWS.items()} if own_endpoint else {}
    values |= at_endpoint(prefix, place.endpoint) if place.endpoint else {}
    if place.profile:
        values |= {f"{prefix}.aws.credentials.provider": _PROFILE, f"{prefix}.auth.profile.name": place.profile}
    return values


def _on_s3(place: BlackboardLocation) -> list[tuple[str, BlackboardLocation]]:
    """Return the bucket of a blackboard with its location. Return [] if the blackboard is not on S3."""
    parts = urlsplit(place.url)
    return [(parts.netloc, place)] if parts.scheme == "s3" else []
