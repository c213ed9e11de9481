"""Decisions about late data: whether they are worth a re-run, by the policy of their input.

Growth is measured against the data that the published update consumed, so many small updates add up. Data below the
thresholds wait until they are old enough, or are skipped until more data arrive.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256

from feed_assets.core.argument_types import as_share
from feed_assets.core.feeds import Partition
from feed_assets.core.growth import Growth, described, growths, is_restated, is_withdrawn
from feed_assets.core.late_policy import Late, Periods, cut_off_of, last_check, next_look
from feed_assets.core.message_words import shortened
from feed_assets.core.pins import InputChange
from feed_assets.core.windows import address_of

GB = 10**9
NAMED = 3
"""Maximum number of partitions that a reason names."""

_INSTANT = timedelta(microseconds=1)


class Outcome(StrEnum):
    """The outcome for late data: a re-run, a wait until a time, or a skip until more data arrive."""

    RERUN = "re-run"
    WAIT = "wait"
    SKIP = "skip"


@dataclass(frozen=True)
class Weighed:
    """The outcome of `weigh`, with its reason. `look_again` is when a wait ends (UTC).

    `before` and `after` are the bytes of the source that grew most, when it was consumed and now. `files` is its number
    of additional files. For windows, records replace bytes, and changed windows replace files.
    """

    outcome: Outcome
    reason: str
    look_again: datetime | None = None
    before: int = 0
    after: int = 0
    files: int = 0
    policies: str = ""
    """A digest of the policies. If a policy changes, the decision counts as new."""

    @property
    def rerun(self) -> bool:
        """Return whether the late data are worth a re-run now."""
        return self.outcome is Outcome.RERUN


@dataclass(frozen=True)
class Arrivals:
    """Changes of one input since it was consumed, and its policy.

    Attributes:
        policy: The policy of the input.
        changes: All changes.
        counted: The changes that arrived before the cut-off and before the last check.
        since: When the first late data of each partition arrived. Later data do not restart the wait.
        cost: The cost of a re-run. None if no earlier run is known.
    """

    policy: Late
    changes: Sequence[InputChange]
    counted: Sequence[InputChange]
    since: Mapping[Partition, datetime] = field(default_factory=dict[Partition, datetime])
    cost: float | None = None

    @property
    def phrase(self) -> str:
        """Describe the changes that have arrived since the input was read."""
        return f"late data of {shortened(sorted({str(each.partition) for each in self.changes}), NAMED)}"


def weigh(inputs: Sequence[Arrivals], periods: Periods, now: datetime) -> Weighed:
    """Weigh the changes of one or more inputs, each by its own policy. One re-run consumes all changes.

    The returned sizes are those of the source that grew most. If an input causes a re-run, only its sources count.
    """
    weighed_inputs = [(each, _weigh(each, periods, now)) for each in inputs]
    none = _unless(
        "; ".join(each.reason for _, each in weighed_inputs), *(each.look_again for _, each in weighed_inputs)
    )
    enough = [(arrivals, each) for arrivals, each in weighed_inputs if each.rerun][:1]
    of = [arrivals for arrivals, _ in enough or weighed_inputs]
    most = max((one for each in of for one in growths(each.changes, each.since, now)), key=_size)
    policies = sha256(repr([each.policy for each in inputs]).encode()).hexdigest()[:12]
    sizes = {"before": most.before, "after": most.after, "files": most.files}
    return replace(enough[0][1] if enough else none, **sizes, policies=policies)


def _unless(reason: str, *looks: datetime | None) -> Weighed:
    """Return the outcome for late data that cause no re-run now.

    This is a wait until the first of the given moments, or a skip if there is none.
    """
    look = min((each for each in looks if each), default=None)
    return Weighed(Outcome.WAIT if look else Outcome.SKIP, reason, look)


def _weigh(arrivals: Arrivals, periods: Periods, now: datetime) -> Weighed:
    """Decide by an input's policy whether its changes cause a re-run. A withdrawn update causes a re-run at once.

    Other changes are weighed at the checks that include the partition's period.
    """
    if gone := next(filter(is_withdrawn, arrivals.changes), None):
        return Weighed(Outcome.RERUN, described(gone))
    policy, check = arrivals.policy, last_check(arrivals.policy, periods, now)
    limit = cut_off_of(policy, periods)
    if next_look(policy, periods, check) != check:
        return _at_next_look(arrivals, periods, check)
    if not arrivals.counted and limit and limit <= check:
        return _unless(f"{arrivals.phrase} arrived after the cut-off of {_at(limit)}: they cause no re-run")
    if not arrivals.counted:
        return _at_next_look(arrivals, periods, check)
    weighed = _counted(arrivals, periods, check, now)
    if weighed.rerun or (limit and limit <= check) or arrivals.counted == arrivals.changes:
        return weighed
    look = next_look(policy, periods, check + _INSTANT)
    suffix = f"; data that arrived after the check are weighed at {_at(look)}" if look else ""
    return _unless(f"{weighed.reason}{suffix}", weighed.look_again, look)


def _at_next_look(arrivals: Arrivals, periods: Periods, check: datetime) -> Weighed:
    """Return the outcome for data that arrived after the last check, or for a period that was not checked then."""
    if look := next_look(arrivals.policy, periods, check + _INSTANT):
        return _unless(f"{arrivals.phrase} are weighed at {_at(look)}", look)
    return _unless(f"{arrivals.phrase} are skipped, because only {_looked_at(arrivals.policy)} are checked")


def _looked_at(policy: Late) -> str:
    back = sorted(policy.looked_at or ())
    return f"the last {len(back)} periods" if back == [*range(len(back))] else f"the periods {back} (0 ended last)"


def _counted(arrivals: Arrivals, periods: Periods, check: datetime, now: datetime) -> Weighed:
    """Decide whether an input's changes cause a re-run, at a check that includes the output's period.

    Only changes that arrived in time for this check count.
    """
    policy = arrivals.policy
    if restated := next(filter(is_restated, arrivals.counted), None):
        return Weighed(Outcome.RERUN, described(restated))
    grown = growths(arrivals.counted, arrivals.since, now)
    enough = [each for each in grown if _is_enough(policy, each)]
    is_worth, worth = _worth(arrivals, grown)
    if enough and is_worth and (policy.combine == "any" or policy.max_age is None):
        return Weighed(Outcome.RERUN, f"{described(enough[0].change)}{worth}")
    explanation = f"{_growth_in_words(policy, max(grown, key=_size), is_enough=bool(enough))}{worth}"
    aging = grown if policy.combine == "any" else enough if is_worth else []
    return _by_age(policy, periods, check, explanation, aging)


def _by_age(policy: Late, periods: Periods, check: datetime, explanation: str, aging: Sequence[Growth]) -> Weighed:
    """Return the outcome by the age of the first data in `aging`: a re-run if they are old enough, otherwise a wait.

    The wait ends at the first check at which they are old enough. Return a skip if there is no such check, if the
    policy has no age, or if `aging` is empty.
    """
    if policy.max_age is None or not aging:
        return _unless(f"{explanation}: they are skipped until more data arrive")
    ripe = min(each.since for each in aging) + policy.max_age
    if check >= ripe:
        return Weighed(Outcome.RERUN, f"{explanation}, but have waited for {policy.max_age}")
    if look := next_look(policy, periods, ripe):
        return _unless(f"{explanation}, and cause a re-run at {_at(look)}", look)
    return _unless(f"{explanation}: they are skipped, because only {_looked_at(policy)} are checked")


def _is_enough(policy: Late, grown: Growth) -> bool:
    """Return whether the size thresholds are met.

    If the policy has none, every change is enough. There is one exception: with an age and `any`, only the age decides.
    """
    met = [grown.share >= as_share(policy.growth)] if policy.growth is not None else []
    met += [grown.files >= policy.files] if policy.files is not None else []
    if policy.combine == "all":
        return all(met)
    return any(met) if met else policy.max_age is None


def _worth(arrivals: Arrivals, grown: Sequence[Growth]) -> tuple[bool, str]:
    """Return whether late data are worth the cost of a re-run, and a text about the cost.

    The answer is also True if the policy has no price, if no cost is known, or for windows, whose bytes are not known.
    """
    price = arrivals.policy.value_per_gb
    if price is None or any(address_of(each.change.partition) for each in grown):
        return True, ""
    if arrivals.cost is None:
        return True, "; the cost of a re-run is not weighed, because no published run is known yet"
    value = sum(each.after - each.before for each in grown) * price
    comparison = f"worth {value / GB:.4g}, and a re-run costs {arrivals.cost:.4g}"
    return value >= arrivals.cost * GB, f" ({comparison})"


def _size(grown: Growth) -> tuple[float, int]:
    return grown.share, grown.files


def _growth_in_words(policy: Late, grown: Growth, *, is_enough: bool) -> str:
    """Describe the largest growth of an input. If it is too small for a re-run, name the thresholds."""
    share = f"{grown.share:+.1%}" if grown.before else "from nothing"
    files = f" in {grown.files} files" if policy.files is not None else ""
    limits = [f"{as_share(policy.growth):.1%}"] if policy.growth is not None else []
    limits += [f"{policy.files} files"] if policy.files is not None else []
    below = f" are below the threshold of {(' and ' if policy.combine == 'all' else ' or ').join(limits)}"
    return f"late data of {grown.whose} ({share}{files}){below if limits and not is_enough else ''}"


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
