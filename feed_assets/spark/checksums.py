"""Checksums of Parquet pages: written with all our data, and verified whenever feed_assets reads with Spark.

Each read and each write sets the options again. Otherwise the configuration of a Connect server, a cluster or a user
would override them.
"""

from collections.abc import Mapping

_VERIFY, _WRITE = "parquet.page.verify-checksum.enabled", "parquet.page.write-checksum.enabled"

VERIFIED: dict[str, bool | str] = {_VERIFY: True}
"""Options of each read. Pages without a checksum are read unverified."""

WRITTEN = {_WRITE: "true"}
"""Options of each write."""

OF_SERVER = dict.fromkeys((_VERIFY, _WRITE), "true")
"""Configuration of a Connect server's session, for the reads and writes of a dataset's own function."""

OF_SESSION = {f"spark.hadoop.{name}": value for name, value in OF_SERVER.items()}
"""The same configuration in the form for a session that has not started yet.

In a running session, this form has no effect.
"""


def without_switches(values: Mapping[str, str]) -> dict[str, str]:
    """Return a configuration without the keys that switch checksums on or off."""
    return {key: value for key, value in values.items() if not _is_switch(key)}


def switched_off(values: Mapping[str, str]) -> list[str]:
    """Return the lines of a configuration that would switch checksums off, as `key=value`."""
    lines = [f"{key}={value}" for key, value in values.items() if _is_switch(key) and value.strip().lower() != "true"]
    return sorted(lines)


def _is_switch(key: str) -> bool:
    return key.removeprefix("spark.hadoop.") in (_VERIFY, _WRITE)
