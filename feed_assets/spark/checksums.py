"""Checksums of Parquet's pages: in all that we write, and verified in all that Spark reads for us.

Each read and each write sets them again. Otherwise the configuration of a Connect server, a cluster or a user wins.
"""

from collections.abc import Mapping

_VERIFY, _WRITE = "parquet.page.verify-checksum.enabled", "parquet.page.write-checksum.enabled"

VERIFIED: dict[str, bool | str] = {_VERIFY: True}
"""Options of each read. Pages without a checksum are read as they are."""

WRITTEN = {_WRITE: "true"}
"""Options of each write."""

OF_SERVER = dict.fromkeys((_VERIFY, _WRITE), "true")
"""Configuration of a session of a Connect server, for what a dataset's function reads and writes itself."""

OF_SESSION = {f"spark.hadoop.{name}": value for name, value in OF_SERVER.items()}
"""The same for a session that has not started yet: later this form has no effect."""


def without_switches(values: Mapping[str, str]) -> dict[str, str]:
    """Return a configuration without the keys that switch checksums on or off."""
    return {key: value for key, value in values.items() if not _is_switch(key)}


def switched_off(values: Mapping[str, str]) -> list[str]:
    """Return the lines of a configuration that would switch checksums off, as `key=value`."""
    lines = [f"{key}={value}" for key, value in values.items() if _is_switch(key) and value.strip().lower() != "true"]
    return sorted(lines)


def _is_switch(key: str) -> bool:
    return key.removeprefix("spark.hadoop.") in (_VERIFY, _WRITE)
