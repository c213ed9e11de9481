"""Expected states of windows, computed from all reports by a walk over minutes, without the product's code."""

import random
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from feed_assets.core.feeds import Feed
from feed_assets.core.reports import Report

FOO = Feed.parse("web/foo")
ZONES = {"apac": "Asia/Singapore", "india": "Asia/Kolkata", "emea": "Europe/Berlin", "americas": "America/Los_Angeles"}
FIVE = timedelta(minutes=5)
MINUTES = {"5min": 5, "10min": 10, "hour": 60}
GRAINS = ("5min", "10min", "hour", "day")


@dataclass(frozen=True)
class World:
    """Regions, the local days that each one reports, and the source's records in every 5 minutes."""

    days: tuple[date, ...]
    per_window: int = 100

    def starts(self, region):
        zone = ZoneInfo(ZONES[region])
        at = datetime(*self.days[0].timetuple()[:3], tzinfo=zone).astimezone(UTC)
        last = self.days[-1] + timedelta(days=1)
        end = datetime(*last.timetuple()[:3], tzinfo=zone).astimezone(UTC)
        found = []
        while at < end:
            found.append(at)
            at += FIVE
        return found


def make_reports(world, parts, rng):
    """Return reports that fill most windows exactly, some short, some over, with corrections both ways and repeats."""
    found = []
    each = parts // len(ZONES)
    for region in ZONES:
        starts, sub = world.starts(region), f"region={region}"
        found += [new("kafka", f"{at:%d%H%M}", {at: world.per_window}, sub) for at in starts]
        counts = Counter(dict.fromkeys(starts, world.per_window))
        for number in range(each - 1):
            some = rng.sample(starts, 3)
            windows = {at: min(rng.randrange(1, 40), counts[at]) for at in some}
            counts.subtract(windows)
            found += versions(f"part-{number}", windows, sub, rng)
        short = {at for at in starts if rng.random() < 0.002}
        found.append(new("", "rest", {at: count for at, count in counts.items() if at not in short}, sub))
    return found


def versions(part, windows, sub, rng):
    """Return the versions of one part: the last one is right, earlier ones had more, fewer or other windows."""
    found = [new("", part, windows, sub, version=3)]
    if rng.random() < 0.2:
        found.append(new("", part, {at: count + rng.randrange(5) for at, count in windows.items()}, sub, version=2))
    if rng.random() < 0.1:
        found.append(new("", part, {min(windows) - 400 * FIVE: 7}, sub, version=1))
    return found


def new(tier, part, windows, sub_partition, version=0):
    ordered = tuple(sorted(windows.items()))
    return Report(FOO, sub_partition, part, ordered, tier=tier, version=f"{version:020d}")


def expected_states(reports, ratio=(99_995, 100_000)):
    """Return the state of every window that is not open, by (sub-partition, grain, key)."""
    newest = {}
    for each in reports:
        if each.key not in newest or each.version > newest[each.key].version:
            newest[each.key] = each
    ingested, source = Counter(), {}
    for each in newest.values():
        for at, count in each.windows:
            if each.tier:
                source[each.sub_partition, at] = source.get((each.sub_partition, at), 0) + count
            else:
                ingested[each.sub_partition, at] += count
    base = {}
    for (sub, at), total in source.items():
        have = ingested[sub, at]
        if have * ratio[1] >= total * ratio[0]:
            base[sub, at] = "complete_with_issue" if have > total else "complete"
    return {**leaves(base), **wholes(base)}


def leaves(base):
    found = {}
    for sub in {sub for sub, _ in base}:
        mine = {at: state for (other, at), state in base.items() if other == sub}
        zone = ZoneInfo(ZONES[sub.removeprefix("region=")])
        for grain in GRAINS:
            for key, minutes in spans(mine, grain, zone).items():
                if all(at in mine for at in minutes):
                    found[sub, grain, key] = worst(mine[at] for at in minutes)
    return found


def wholes(base):
    """Return the windows of all regions together: days by their date."""
    each = leaves(base)
    keys = {(grain, key) for _, grain, key in each}
    found = {}
    for grain, key in keys:
        states = [each.get((f"region={region}", grain, key)) for region in ZONES]
        if all(states):
            found["", grain, key] = worst(states)
    return found


def worst(states):
    return "complete_with_issue" if "complete_with_issue" in set(states) else "complete"


def spans(mine, grain, zone):
    """Return, by key, the 5-minute starts of every window of a grain that contains one of these."""
    found = {}
    for at in mine:
        if grain == "day":
            local = at.astimezone(zone).date()
            found.setdefault(local.isoformat(), None)
        else:
            first = at - timedelta(minutes=at.minute % MINUTES[grain])
            found[f"{first:%Y-%m-%d-%H:%M}"] = [first + FIVE * step for step in range(MINUTES[grain] // 5)]
    for key in [key for key, minutes in found.items() if minutes is None]:
        found[key] = minutes_of_day(date.fromisoformat(key), zone)
    return found


def minutes_of_day(day, zone):
    at = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(days=1)
    steps = (at + FIVE * step for step in range(12 * 24 * 3))
    return [step for step in steps if step.astimezone(zone).date() == day]


def shuffled(reports, rng):
    """Yield the reports in random order, one in ten of them twice, cut into calls at random."""
    order = [*reports, *rng.sample(reports, len(reports) // 10)]
    rng.shuffle(order)
    while order:
        size = rng.choice((1, 10, 100, 1000, 3000))
        yield order[:size]
        order = order[size:]


def rng_of(seed):
    return random.Random(seed)  # noqa: S311
