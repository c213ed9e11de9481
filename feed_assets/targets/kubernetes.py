"""Probe of a namespace of Kubernetes: the free part of its quotas, or of the nodes if it has no quota."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

from pydantic import Field, StringConstraints

from feed_assets.core.target_room import Probe
from feed_assets.core.targets import Kubernetes
from feed_assets.targets.json_answers import AnswerPart, NoAnswer, Server, TooMuch, look_at_server
from feed_assets.targets.kubernetes_quantities import NO_QUANTITY, Requesting, amount, quantity

CPU, MEMORY = "cpu", "memory"
_PAGE = 40
"""Number of objects in an answer. A large object has 20 KB, mostly of fields that only Kubernetes itself reads."""
_WAITING = 100
"""Greatest number of waiting pods that are counted."""
_JSON = "application/json"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""The form of an answer that has only the metadata of objects, such as their names."""
_OF_EACH_RUN = ("NotBestEffort", "NotTerminating")
"""Quota scopes that include every executor."""


class _Condition(AnswerPart):
    type: str = ""
    status: str = ""


class _Status(AnswerPart):
    hard: dict[str, str] = Field(default_factory=dict[str, str])
    used: dict[str, str] = Field(default_factory=dict[str, str])
    allocatable: dict[str, str] = Field(default_factory=dict[str, str])
    conditions: list[_Condition] = Field(default_factory=list[_Condition])


class _Taint(AnswerPart):
    effect: str = ""


class _Spec(Requesting):
    unschedulable: bool = False
    taints: list[_Taint] = Field(default_factory=list[_Taint])
    nodeName: str = ""  # noqa: N815  Kubernetes' own name, like the names below
    scopes: list[str] = Field(default_factory=list[str])
    scopeSelector: dict[str, object] | None = None  # noqa: N815


class _ObjectName(AnswerPart):
    name: str = ""


class _Item(AnswerPart):
    metadata: _ObjectName = _ObjectName()
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _OfList(AnswerPart):
    next_page: str = Field(default="", alias="continue")


class _Items(AnswerPart):
    kind: Annotated[str, StringConstraints(pattern="List$")]
    metadata: _OfList = _OfList()
    items: list[_Item] = Field(default_factory=list[_Item], max_length=1000)  # We request at most 100.


@dataclass(frozen=True)
class _Capacity:
    """The size of a resource, and the part of it that is free."""

    total: Decimal
    free: Decimal


@dataclass(frozen=True)
class _Api:
    server: Server
    url: str
    headers: Mapping[str, str]

    def objects(self, path: str, *, accept: str = _JSON, page: int = _PAGE, **query: str) -> Iterator[_Item]:
        """Yield the objects of a list, page by page."""
        page_token = ""
        while True:
            options = urlencode({**query, "limit": page, **({"continue": page_token} if page_token else {})})
            answer = self.server.get(_Items, f"{self.url}{path}?{options}", {**self.headers, "Accept": accept})
            yield from answer.items
            if not (page_token := answer.metadata.next_page):
                return


def look(target: Kubernetes, now: datetime) -> Probe:
    """Return the free resources.

    Raise NoAnswer if the API server does not answer, or does not let the token read the objects.
    """
    of_namespace = f"/api/v1/namespaces/{target.namespace}"
    with _api(target) as api:
        quotas = [each for each in api.objects(f"{of_namespace}/resourcequotas") if _is_of_each_run(each.spec)]
        limits = {name: _of_quotas([each.status for each in quotas], name) for name in (CPU, MEMORY)}
        sizes = {name: size for name, size in limits.items() if size}
        if len(sizes) < len(limits):
            sizes = {**_of_nodes(api, target.namespace), **sizes}
        waiting = api.objects(
            f"{of_namespace}/pods",
            accept=f"{_METADATA},{_JSON}",
            page=_WAITING,
            fieldSelector="status.phase=Pending",
        )
        queued = sum(1 for _ in islice(waiting, _WAITING))
    cpu, memory = sizes[CPU], sizes[MEMORY]
    return Probe(now, amount(cpu.total, memory.total), amount(cpu.free, memory.free), queued=queued)


@contextmanager
def _api(target: Kubernetes) -> Generator[_Api]:
    if target.ca_file and not target.ca_file.is_file():
        raise NoAnswer("its ca_file is missing")
    with look_at_server(target.ca_file) as server:
        yield _Api(server, target.url.rstrip("/"), _bearer(target.token_file))


def _bearer(token_file: Path | None) -> dict[str, str]:
    """Return the header with the token, which is read each time because Kubernetes replaces it."""
    if token_file is None:
        return {}
    try:
        return {"Authorization": f"Bearer {token_file.read_text(encoding='utf-8').strip()}"}
    except (OSError, UnicodeError) as error:
        raise NoAnswer(f"its token_file cannot be read ({type(error).__name__})") from None


def _is_of_each_run(spec: _Spec) -> bool:
    """Return whether a quota counts every executor. A scope not in `_OF_EACH_RUN`, or a selector, may exclude some."""
    return spec.scopeSelector is None and {*spec.scopes} <= {*_OF_EACH_RUN}


def _of_quotas(quotas: Sequence[_Status], name: str) -> _Capacity | None:
    """Return the total and the free amount of a resource by the strictest quotas. Return None if no quota limits it."""
    names = (f"requests.{name}", name, f"limits.{name}")
    limits = [(each, limit) for each in quotas for limit in names if limit in each.hard]
    totals = [quantity(each.hard[limit]) for each, limit in limits]
    used = [quantity(each.used.get(limit, "0")) for each, limit in limits]
    frees = [total - part for total, part in zip(totals, used, strict=True)]
    return _Capacity(min(totals), min(frees)) if limits else None


def _of_nodes(api: _Api, namespace: str) -> dict[str, _Capacity]:
    """Return the size of the nodes that take pods, and the part that no pod requests.

    A large cluster has more nodes and pods than can be read in time. A namespace in such a cluster needs a quota.
    """
    try:
        nodes = [each for each in api.objects("/api/v1/nodes") if _takes_pods(each)]
        if not nodes:
            raise NoAnswer("it has no node that takes pods")
        used = _requested(api, {each.metadata.name for each in nodes})
    except TooMuch as error:
        hint = f"give the namespace {namespace} a ResourceQuota for requests.cpu and requests.memory"
        raise NoAnswer(f"{error}: {hint}") from None
    return {name: _less(nodes, name, used[name]) for name in (CPU, MEMORY)}


def _requested(api: _Api, names: set[str]) -> dict[str, Decimal]:
    """Return the requests of unfinished pods that are on one of the nodes, or on no node yet."""
    used = {CPU: NO_QUANTITY, MEMORY: NO_QUANTITY}
    running = "status.phase!=Succeeded,status.phase!=Failed"
    for pod in api.objects("/api/v1/pods", fieldSelector=running):
        if not pod.spec.nodeName or pod.spec.nodeName in names:
            used = {name: number + pod.spec.request(name) for name, number in used.items()}
    return used


def _less(nodes: Sequence[_Item], name: str, used: Decimal) -> _Capacity:
    total = sum((quantity(each.status.allocatable.get(name, "0")) for each in nodes), NO_QUANTITY)
    return _Capacity(total, total - used)


def _takes_pods(node: _Item) -> bool:
    """Return whether an executor may start on a node. Executors tolerate no taint."""
    is_ready = any((each.type, each.status) == ("Ready", "True") for each in node.status.conditions)
    is_tainted = any(each.effect in ("NoSchedule", "NoExecute") for each in node.spec.taints)
    return is_ready and not node.spec.unschedulable and not is_tainted
