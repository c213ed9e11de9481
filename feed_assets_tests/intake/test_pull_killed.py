"""A pull killed at each of its changes in turn: no file is pulled twice, and none is lost."""

import random
import shutil
import signal
from itertools import count
from pathlib import Path

import pytest

from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import open_ledger
from feed_assets_tests.support.kill_points import call_and_die
from feed_assets_tests.support.pull_partners import FIRST, Partner, never

HOUR = "2024-02-29-05:00"
SECOND = "2024-02-29/06/b.csv"
THIRD, FOURTH = "2024-02-29/07/c.csv", "2024-02-29/07/d.csv"
HELD = {HOUR: ["id\n1\n2\n"], "2024-02-29-06:00": ["id\n3\n"], "2024-02-29-07:00": ["id\n7\n"]}


def partner_in(folder: Path) -> Partner:
    boards = [Blackboard.open((folder / name).as_uri(), create=True) for name in ("theirs", "ours")]
    return Partner(*boards, open_ledger(f"sqlite:///{folder / 'ledger.db'}"))


def pull_and_die(folder: Path, number: int) -> None:
    """Poll, and be killed right before the change with this number; 0 means not at all."""
    call_and_die(number, folder / "ours", partner_in(folder).look)


@pytest.fixture
def folder(tmp_path: Path, empty_ledger: Path) -> Path:
    """Change one pulled file, add a new one, and rename one onto another."""
    shutil.copyfile(empty_ledger, tmp_path / "ledger.db")
    partner = partner_in(tmp_path)
    for name, content in ((FIRST, "id\n1\n"), (THIRD, "id\n7\n"), (FOURTH, "id\n8\n")):
        partner.put(name, content)
    partner.look()
    (tmp_path / "theirs" / "out" / THIRD).rename(tmp_path / "theirs" / "out" / FOURTH)
    partner.put(FIRST, "id\n1\n2\n")
    partner.put(SECOND, "id\n3\n")
    partner.ledger.engine.dispose()
    shutil.copytree(tmp_path / "ours", tmp_path / "ours before")
    shutil.copyfile(tmp_path / "ledger.db", tmp_path / "ledger before.db")
    return tmp_path


def test_a_pull_killed_anywhere_loses_and_repeats_nothing(folder, forker):
    codes = [-signal.SIGKILL]
    while codes[-1] == -signal.SIGKILL:
        shutil.rmtree(folder / "ours")
        shutil.copytree(folder / "ours before", folder / "ours")
        for file in folder.glob("ledger.db*"):
            file.unlink()
        shutil.copyfile(folder / "ledger before.db", folder / "ledger.db")
        codes.append(forker.run(pull_and_die, folder, len(codes)))
        assert forker.run(pull_and_die, folder, 0) == 0
        partner = partner_in(folder)
        assert partner.held() == HELD, len(codes)
        assert partner.known() == dict.fromkeys(HELD, 1)
        assert partner.updates() == 4, f"killed at {len(codes) - 1}, one was published twice"
        partner.ledger.engine.dispose()
    assert codes[-1] == 0
    assert len(codes) > 20


ACTIONS = ("add", "overwrite", "reverse", "truncate", "empty", "rename", "onto", "delete", "look", "some")


class Model:
    """Expected content of the feed: for each file, by identity, its content at the last poll."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.batches: dict[tuple[int, str], str] = {}
        self.of: dict[str, tuple[int, str]] = {}
        self.numbers = count()

    def look(self) -> None:
        """Poll: an emptied or deleted file keeps its pulled content."""
        for name, content in self.files.items():
            if content:
                self.batches[self.of.setdefault(name, (next(self.numbers), name))] = content

    def rename(self, name: str, to: str) -> None:
        """Rename: within an hour it stays the same file, and the replaced file is gone."""
        self.files[to] = self.files.pop(name)
        self.batches.pop(self.of.get(to, (0, "")), None)
        self.of[to] = self.of.pop(name)

    def is_known(self, name: str) -> bool:
        """Return True if a file is unchanged since it was pulled."""
        return bool(self.files[name]) and name in self.of and self.batches[self.of[name]] == self.files[name]

    def held(self) -> dict[str, list[str]]:
        """Return the contents by hour; the first name of a batch's file tells the hour."""
        found: dict[str, list[str]] = {}
        for (_, name), content in self.batches.items():
            _, hour, _ = name.split("/")
            found.setdefault(f"2024-02-29-{hour}:00", []).append(content)
        return {hour: sorted(contents) for hour, contents in sorted(found.items())}


def held(partner: Partner) -> dict[str, list[str]]:
    return {hour: contents for hour, contents in partner.held().items() if contents}


def step(partner: Partner, model: Model, dice: random.Random, number: int) -> None:
    """Perform one action of a partner; rename only pulled files, since others cannot be recognized afterwards."""
    action = dice.choice([*ACTIONS, "add"])
    name = dice.choice([*model.files, ""]) if model.files else ""
    root = partner.theirs._root / "out"
    if action == "add" or not name:
        name = f"2024-02-29/{dice.randint(0, 2):02}/{dice.choice(['a', 'ä', '_x', 'b c'])}{number}.csv"
        model.files[name] = f"{number}\n" * dice.randint(1, 5)
        partner.put(name, model.files[name])
    elif action in ("overwrite", "reverse", "truncate", "empty"):
        old = model.files[name]
        new = {"overwrite": f"{number}\n" * len(old), "reverse": old[::-1], "truncate": old[: len(old) // 2]}
        model.files[name] = new.get(action, "")
        partner.put(name, model.files[name])
    elif action in ("rename", "onto"):
        partner.look_at_all(never)
        model.look()
        others = [each for each in model.files if each.split("/")[1] == name.split("/")[1]]
        to = name.replace(".csv", f"-{number}.csv") if action == "rename" else dice.choice(others)
        if model.is_known(name) and to != name:
            (root / name).rename(root / to)
            model.rename(name, to)
            partner.look_at_all(never)
            model.look()
    elif action == "delete":
        partner.remove(name)
        del model.files[name]
    elif action == "some":
        partner.look_at_all()
        model.look()
    else:
        partner.look_at_all(never)
        model.look()


@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(10, 200))])
def test_a_pulled_feed_matches_a_model_under_random_partner_actions(tmp_path, ledger, seed):
    """Compare with a model of plain dictionaries."""
    dice, model = random.Random(seed), Model()  # noqa: S311
    theirs, ours = [Blackboard.open((tmp_path / name).as_uri(), create=True) for name in ("theirs", "ours")]
    partner = Partner(theirs, ours, ledger)
    for number in range(40):
        step(partner, model, dice, number)
    partner.look_at_all()
    model.look()
    assert held(partner) == model.held()
    before = partner.updates()
    partner.look()
    assert partner.updates() == before
