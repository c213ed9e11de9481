"""Checks of all compute targets together: each cluster is declared once, and Spark finds it."""

from collections.abc import Mapping
from itertools import combinations
from urllib.parse import urlsplit

from feed_assets.core.targets import ComputeTarget, Connect, EmrServerless, Kubernetes, Standalone, Yarn

MANAGER = "spark.hadoop.yarn.resourcemanager.address"
"""The key of Spark's configuration for a ResourceManager. Without the key, Hadoop's files name the ResourceManager."""

_LOCAL = {"localhost": "127.0.0.1", "::1": "127.0.0.1"}
_PORTS = {"http": 80, "https": 443, "sc": 15002}


def check_places(targets: Mapping[str, ComputeTarget]) -> Mapping[str, ComputeTarget]:
    """Raise ValueError if two targets are one cluster, or if Spark could not tell two YARN clusters apart."""
    for (name, one), (other_name, other) in combinations(targets.items(), 2):
        if {*_places(one)} & {*_places(other)}:
            raise ValueError(f"{name} and {other_name} are one cluster, whose room would be given twice: expected one")
        if isinstance(one, Yarn) and isinstance(other, Yarn) and _address(one.url) != _address(other.url):
            _check_managers(name, one, other_name, other)
    return targets


def _check_managers(name: str, one: Yarn, other_name: str, other: Yarn) -> None:
    if one.conf.get(MANAGER) == other.conf.get(MANAGER):
        raise ValueError(
            f"{name} and {other_name} are two clusters of YARN, but Spark uses the one of HADOOP_CONF_DIR for both: "
            f"expected one, or {MANAGER} in the conf of each"
        )


def _places(target: ComputeTarget) -> list[tuple[object, ...]]:
    """Return the addresses of a target. Two targets of one cluster have at least one address in common.

    Return [] for the machine of a run's process. Names are not resolved: two host names count as two clusters, and two
    names of a YARN queue as two queues. Only a `root.` at the beginning of a queue's name is ignored.
    """
    match target:
        case Standalone():
            return [("standalone", _address(target.master)), ("standalone", _address(target.url))]
        case Connect():
            return [("connect", _address(target.remote.get_secret_value().partition("/;")[0]))]
        case Yarn():
            return [("yarn", _address(target.url), target.queue.removeprefix("root."))]
        case Kubernetes():
            return [("kubernetes", _address(target.url), target.namespace)]
        case EmrServerless():
            return [("emr-serverless", target.application_id)]
        case _:
            return []


def _address(url: str) -> tuple[str, int | None, str]:
    """Return host, port and path of a validated URL, so that two spellings of one address are equal."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return _LOCAL.get(host, host), parts.port or _PORTS.get(parts.scheme), parts.path.rstrip("/")
