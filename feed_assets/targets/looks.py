"""The probe of a target of any kind: it finds what is free there, or why the target gives no answer."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

from feed_assets.core.limits import excerpt
from feed_assets.core.target_room import Probe
from feed_assets.core.targets import ComputeTarget, Connect, EmrServerless, Kubernetes, Local, Standalone, Yarn
from feed_assets.targets import connect_server, emr_serverless, kubernetes, standalone, yarn
from feed_assets.targets.json_answers import NoAnswer

_log = logging.getLogger(__name__)

LARGEST = 1 << 62
"""Greatest number that an answer may contain. The ledger keeps numbers below 2^63."""

LONGEST = 500
"""Greatest length in bytes of the reason why a target gives no answer."""


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
    """Probe a target and return its answer. Without an answer, the target is offline since `now` (UTC).

    An unexpected error in a probe also counts as offline, so that it does not end the probes of other targets.
    """
    try:
        return _bounded(_LOOKS[type(target)](target, now))
    except NoAnswer as error:
        return Probe(now, offline=excerpt(str(error), LONGEST), since=now)
    except Exception as error:  # noqa: BLE001 (the probes of other targets must go on)
        _log.exception("The probe of a compute target failed. It counts as offline.")
        return Probe(now, offline=f"the probe failed ({type(error).__name__})", since=now)


def _bounded(probe: Probe) -> Probe:
    """Return the probe unchanged. Raise NoAnswer if the ledger cannot keep the probe's numbers."""
    numbers = (probe.total.cores, probe.total.memory, probe.free.cores, probe.free.memory, probe.queued)
    if not all(abs(each) <= LARGEST for each in numbers):  # The free amounts may be negative.
        raise NoAnswer("another answer than expected (cores, bytes and queue are numbers up to 2^62)")
    return probe
