"""Probe of a namespace of Kubernetes: what is free of its quota, or of the nodes if it has none."""

import re
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlencode

from pydantic import Field

from feed_assets.core.allotment import Probe
from feed_assets.core.resources import Amount
from feed_assets.core.targets import Kubernetes
from feed_assets.targets.json_answers import LARGEST, AnswerPart, NoAnswer, get

_QUANTITY = re.compile(r"(\d{1,20}(?:\.\d{1,9})?)(?:([numkMGTPE]|[KMGTPE]i)|e(\d{1,2}))?")
_SMALL = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "k": Decimal(1000)}
_LARGE = {letter: Decimal(1000) ** power for power, letter in enumerate("MGTPE", 2)}
_BINARY = {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)}
_SUFFIXES = {**_SMALL, **_LARGE, **_BINARY}
_CPU, _MEMORY = ("requests.cpu", "cpu", "limits.cpu"), ("requests.memory", "memory", "limits.memory")
_WAITING = 100
"""Greatest number of waiting pods that are counted."""


class _Status(AnswerPart):
    hard: dict[str, str] = Field(default_factory=dict[str, str])
    used: dict[str, str] = Field(default_factory=dict[str, str])
    allocatable: dict[str, str] = Field(default_factory=dict[str, str])
    conditions: list[dict[str, str]] = Field(default_factory=list[dict[str, str]])


class _Requests(AnswerPart):
    requests: dict[str, str] = Field(default_factory=dict[str, str])


class _Container(AnswerPart):
    resources: _Requests = _Requests()


class _Spec(AnswerPart):
    unschedulable: bool = False
    containers: list[_Container] = Field(default_factory=list[_Container])


class _Item(AnswerPart):
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Items(AnswerPart):
    items: list[_Item]


def look(target: Kubernetes, now: datetime) -> Probe:
    """Return what is free. Raise NoAnswer if the API server gives no answer, or the token may not read it."""
    of_namespace = f"/api/v1/namespaces/{target.namespace}"
    quotas = [each.status for each in _read(target, f"{of_namespace}/resourcequotas") if _limits(each.status)]
    total, free = _of_quotas(quotas) if quotas else _of_nodes(target)
    pending = urlencode({"fieldSelector": "status.phase=Pending", "limit": _WAITING})
    return Probe(now, total, free, queued=len(_read(target, f"{of_namespace}/pods?{pending}")))


def _read(target: Kubernetes, path: str) -> list[_Item]:
    headers = {"Accept": "application/json", **_bearer(target.token_file)}
    return get(_Items, f"{target.url.rstrip('/')}{path}", headers, target.ca_file).items


def _bearer(token_file: Path | None) -> dict[str, str]:
    """Return the header with the token, which is read each time because Kubernetes replaces it."""
    if token_file is None:
        return {}
    try:
        return {"Authorization": f"Bearer {token_file.read_text(encoding='utf-8').strip()}"}
    except (OSError, UnicodeError) as error:
        raise NoAnswer(f"its token_file cannot be read ({type(error).__name__})") from None


def _limits(status: _Status) -> bool:
    return any(name in status.hard for name in (*_CPU, *_MEMORY))


_NO_LIMIT = Decimal(1 << 60)
"""The amount of what no quota limits."""


def _of_quotas(quotas: Iterable[_Status]) -> tuple[Amount, Amount]:
    """Return size and free resources by the strictest quota."""
    totals, frees = list[Amount](), list[Amount]()
    for each in quotas:
        hard = [_hard(each, names) for names in (_CPU, _MEMORY)]
        free = [_hard(each, names) - _used(each, names) for names in (_CPU, _MEMORY)]
        totals.append(_amount(*hard))
        frees.append(_amount(*free))
    return _least(totals), _least(frees)


def _hard(status: _Status, names: Iterable[str]) -> Decimal:
    texts = [status.hard[name] for name in names if name in status.hard]
    return _number(texts[0]) if texts else _NO_LIMIT


def _used(status: _Status, names: Iterable[str]) -> Decimal:
    """Return what is used of the resource that `_hard` returns."""
    limited = [name for name in names if name in status.hard]
    return _number(status.used.get(limited[0], "0")) if limited else Decimal(0)


def _amount(cpu: Decimal, memory: Decimal) -> Amount:
    """Return whole cores and bytes. A part of a core starts no executor."""
    return Amount(max(int(cpu), 0), max(int(memory), 0))


def _least(amounts: list[Amount]) -> Amount:
    return Amount(min(each.cores for each in amounts), min(each.memory for each in amounts))


def _of_nodes(target: Kubernetes) -> tuple[Amount, Amount]:
    """Return the size of the nodes that take pods, and the part that no pod has requested.

    The pods of a large cluster are more than an answer may have. Such a namespace needs a quota.
    """
    nodes = [each for each in _read(target, "/api/v1/nodes") if _takes_pods(each)]
    if not nodes:
        raise NoAnswer("it has no node that takes pods")
    running = urlencode({"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"})
    try:
        pods = _read(target, f"/api/v1/pods?{running}")
    except NoAnswer as error:
        if f"{LARGEST >> 20} MiB" not in str(error):
            raise
        raise NoAnswer(f"{error}: give the namespace {target.namespace} a ResourceQuota") from None
    sizes = [each.status.allocatable for each in nodes]
    requested = [container.resources.requests for pod in pods for container in pod.spec.containers]
    (cpu, memory), (used_cpu, used_memory) = _sum(sizes), _sum(requested)
    return _amount(cpu, memory), _amount(cpu - used_cpu, memory - used_memory)


def _takes_pods(node: _Item) -> bool:
    is_ready = any((each.get("type"), each.get("status")) == ("Ready", "True") for each in node.status.conditions)
    return is_ready and not node.spec.unschedulable


def _sum(values: list[dict[str, str]]) -> tuple[Decimal, Decimal]:
    cpu = sum((_number(each.get("cpu", "0")) for each in values), Decimal(0))
    return cpu, sum((_number(each.get("memory", "0")) for each in values), Decimal(0))


def _number(text: str) -> Decimal:
    """Return a quantity of Kubernetes, such as 500m or 16Gi. Raise NoAnswer for another text."""
    if not (match := _QUANTITY.fullmatch(text)):
        raise NoAnswer("another answer than expected (a quantity)")
    factor = _SUFFIXES[match[2]] if match[2] else Decimal(10) ** int(match[3] or 0)
    return Decimal(match[1]) * factor
