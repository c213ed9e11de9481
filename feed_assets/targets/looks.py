"""The look at a target of each kind: what is free there, or why it gives no answer."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from feed_assets.core.allotment import Probe
from feed_assets.core.targets import ComputeTarget, Connect, EmrServerless, Kubernetes, Local, Standalone, Yarn
from feed_assets.targets import connect_server, emr_serverless, kubernetes, standalone, yarn
from feed_assets.targets.json_answers import NoAnswer


def _of_local(target: Local, now: datetime) -> Probe:
    return Probe(now, target.total, target.total)


_LOOKS: dict[type[Any], Callable[[Any, datetime], Probe]] = {
    Local: _of_local,
    Standalone: standalone.look,
    Connect: connect_server.look,
    Yarn: yarn.look,
    Kubernetes: kubernetes.look,
    EmrServerless: emr_serverless.look,
}


def look(now: datetime, target: ComputeTarget) -> Probe:
    """Return the answer of a target. Without an answer it is offline since `now` (UTC)."""
    try:
        return _LOOKS[type(target)](target, now)
    except NoAnswer as error:
        return Probe(now, offline=str(error), since=now)
