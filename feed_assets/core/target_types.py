"""Types of the fields of compute targets. The message about a wrong value is in plain words, and hides the value."""

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from feed_assets.core.resources import bytes_of

_PORT = r"[1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5]"
_HOST = r"([\w.-]+|\[[0-9a-fA-F:.]+\])"
REMOTE = rf"sc://{_HOST}(:({_PORT}))?(/(;.*)?)?"
"""The pattern of a Spark Connect URL."""

_MASTER = re.compile(rf"spark://{_HOST}:({_PORT})")
_WEB = re.compile(rf"https?://{_HOST}(:({_PORT}))?(/[^@?#\s]*)?")

_MOST_MEMORY = 1 << 50
_LEAST_MEMORY = 512 << 20

RESOURCE_KEYS = frozenset(
    {
        "spark.master",
        "spark.remote",
        "spark.submit.deployMode",
        "spark.cores.max",
        "spark.dynamicAllocation.enabled",
        "spark.executor.cores",
        "spark.executor.instances",
        "spark.executor.memory",
        "spark.executor.memoryOverhead",
        "spark.executor.memoryOverheadFactor",
        "spark.executor.pyspark.memory",
        "spark.kubernetes.executor.limit.cores",
        "spark.kubernetes.executor.request.cores",
        "spark.kubernetes.namespace",
        "spark.memory.offHeap.enabled",
        "spark.memory.offHeap.size",
        "spark.task.cpus",
        "spark.yarn.am.cores",
        "spark.yarn.am.memory",
        "spark.yarn.am.memoryOverhead",
        "spark.yarn.queue",
    }
)
"""Keys of Spark's configuration with which a run would use another place, or other resources, than it was granted."""


def _memory(text: str) -> str:
    try:
        amount = bytes_of(text)
    except ValueError:  # Targets are a secret setting: the message shows no value.
        raise ValueError("expected memory as Spark writes it, such as 512m or 4g") from None
    if not _LEAST_MEMORY <= amount <= _MOST_MEMORY:
        raise ValueError("expected memory from 512m, which is that of one core, to 1024t")
    return text


def _master(url: str) -> str:
    if not _MASTER.fullmatch(url):
        raise ValueError("expected spark://host:7077, with one host and its port")
    return url


def _web(url: str) -> str:
    if not _WEB.fullmatch(url):
        raise ValueError("expected http://host:8080 or https://host, without a user and a query")
    return url


def _remote(url: SecretStr) -> SecretStr:
    if not re.fullmatch(REMOTE, url.get_secret_value(), re.DOTALL):
        raise ValueError("expected sc://host, sc://host:15002 or sc://host:15002/;token=…, without a user")
    return url


def _labels(value: object) -> object:
    if isinstance(value, str):
        raise ValueError('expected a JSON list of labels, such as ["gpu"]')  # noqa: TRY004  pydantic's own errors
    return value


def _conf(values: Mapping[str, str], keys: frozenset[str] = RESOURCE_KEYS) -> Mapping[str, str]:
    if wrong := sorted(keys.intersection(values)):
        raise ValueError(
            f"expected no {' or '.join(wrong)}, because each run has its own, by the target's fields and the dataset's "
            "Resources. Remove it"
        )
    return values


Cores = Annotated[int, Field(ge=1, le=1_000_000)]
Memory = Annotated[str, AfterValidator(_memory)]
Web = Annotated[str, AfterValidator(_web)]
Master = Annotated[str, AfterValidator(_master)]
Remote = Annotated[SecretStr, AfterValidator(_remote)]
Labels = Annotated[tuple[str, ...], BeforeValidator(_labels)]


def _conf_with_driver(values: Mapping[str, str]) -> Mapping[str, str]:
    """Refuse keys for the driver's size, too. On these targets the driver takes room, and its size is counted."""
    return _conf(values, frozenset({"spark.driver.cores", "spark.driver.memory", "spark.driver.memoryOverhead"}))


Conf = Annotated[dict[str, str], AfterValidator(_conf)]
ConfWithDriver = Annotated[Conf, AfterValidator(_conf_with_driver)]
