"""Quantities of Kubernetes, such as 500m or 16Gi, and the sums that its scheduler makes of them."""

import re
from decimal import Decimal

from pydantic import Field

from feed_assets.core.resources import Amount
from feed_assets.targets.json_answers import AnswerPart, NoAnswer

_QUANTITY = re.compile(r"\+?(\d{1,20}(?:\.\d{0,9})?)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,2}))?")
_SMALL = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "k": Decimal(1000)}
_LARGE = {letter: Decimal(1000) ** power for power, letter in enumerate("MGTPE", 2)}
_BINARY = {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)}
_SUFFIXES = {**_SMALL, **_LARGE, **_BINARY}

_GREATEST = Decimal(1 << 60)
"""Greatest amount of cores or bytes. The ledger's numbers end at 2^63."""

NO_QUANTITY = Decimal(0)


class Requests(AnswerPart):
    """The `resources` of a container or a pod."""

    requests: dict[str, str] = Field(default_factory=dict[str, str])


class Container(AnswerPart):
    """A container of a pod. An init container that is always restarted is a sidecar: it runs beside the others."""

    resources: Requests = Requests()
    restartPolicy: str = ""  # noqa: N815  Kubernetes' own name, like the names below

    def request(self, name: str) -> Decimal:
        """Return the amount of a resource that the container requests."""
        return quantity(self.resources.requests.get(name, "0"))


class Requesting(AnswerPart):
    """The part of a pod's spec that requests resources."""

    containers: list[Container] = Field(default_factory=list[Container])
    initContainers: list[Container] = Field(default_factory=list[Container])  # noqa: N815
    overhead: dict[str, str] = Field(default_factory=dict[str, str])
    resources: Requests = Requests()

    def request(self, name: str) -> Decimal:
        """Return the amount that the pod requests while it runs, or while it starts if that is more, plus its overhead.

        See "Resource sharing within containers" on Kubernetes' page about init containers.
        """
        sidecars, most = NO_QUANTITY, NO_QUANTITY
        for each in self.initContainers:
            most = max(most, sidecars + each.request(name))
            sidecars += each.request(name) if each.restartPolicy == "Always" else NO_QUANTITY
        most = max(most, sidecars + sum((each.request(name) for each in self.containers), NO_QUANTITY))
        if own := self.resources.requests.get(name):  # A request of the whole pod replaces those of its containers.
            most = quantity(own)
        return most + quantity(self.overhead.get(name, "0"))


def quantity(text: str) -> Decimal:
    """Return a quantity of Kubernetes as a number.

    Raise NoAnswer if the text is no quantity, or the number is too great.
    """
    if not (match := _QUANTITY.fullmatch(text)):
        raise NoAnswer("another answer than expected (a quantity)")
    factor = _SUFFIXES[match[2]] if match[2] else Decimal(10) ** int(match[3] or 0)
    number = Decimal(match[1]) * factor
    if number > _GREATEST:
        raise NoAnswer("another answer than expected (a quantity)")
    return number


def amount(cpu: Decimal, memory: Decimal) -> Amount:
    """Return whole cores and bytes, rounded down: an executor cannot start on a part of a core."""
    return Amount(max(int(cpu), 0), max(int(memory), 0))
