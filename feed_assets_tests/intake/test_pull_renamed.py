"""Files that a partner renames, or replaces by renaming: each is pulled once, under any name."""

from feed_assets.feeds.blackboard import Blackboard
from feed_assets_tests.support.pull_partners import FIRST, HOUR, Partner, rename_file, wrong_files


def test_a_file_that_is_renamed_is_not_pulled_again(on_disk):
    on_disk.put(FIRST, "id\n1\n")
    on_disk.look()
    rename_file(on_disk, FIRST, "2024-02-29/05/b.csv")
    on_disk.look()
    assert (on_disk.held(), on_disk.updates()) == ({HOUR: ["id\n1\n"]}, 1)
    on_disk.put("2024-02-29/05/b.csv", "id\n3\n")  # It is its batch now,
    on_disk.put(FIRST, "id\n2\n")  # and the old name is another file's.
    on_disk.look()
    assert on_disk.held() == {HOUR: ["id\n2\n", "id\n3\n"]}
    on_disk.look()
    assert on_disk.updates() == 3


def test_a_file_renamed_onto_another_one_replaces_it(on_disk):
    other = "2024-02-29/05/b.csv"
    for name, content in ((FIRST, "id\n1\n"), (other, "id\n2\n")):
        on_disk.put(name, content)
        on_disk.look()
    rename_file(on_disk, FIRST, other)
    for _ in range(2):
        on_disk.look()
        assert (on_disk.held(), on_disk.known()) == ({HOUR: ["id\n1\n"]}, {HOUR: 1})
    assert wrong_files(on_disk) == []


def test_a_file_that_returns_after_a_rename_replaced_it_is_pulled_again(s3_board, ledger):
    """Bring back a file with the same etag after its batch was withdrawn: it counts as another file."""
    partner = Partner(s3_board, Blackboard.open("memory://"), ledger)
    a, b, c = (f"2024-02-29/05/{name}.csv" for name in "abc")

    def puts(**files: str | None) -> list[str]:
        for name, content in files.items():
            file = {"a": a, "b": b, "c": c}[name]
            partner.remove(file) if content is None else partner.put(file, content)
        partner.look()
        return partner.held()[HOUR]

    assert puts(a="id\n1\n", b="id\n2\n") == ["id\n1\n", "id\n2\n"]
    assert puts(a="id\n2\n", b=None) == ["id\n2\n"]
    assert puts(c="id\n2\n", a=None) == ["id\n2\n"]
    assert puts(a="id\n1\n") == ["id\n1\n", "id\n2\n"]


def test_two_files_of_the_same_content_are_two(s3_board, ledger):
    """Use two files with equal etags, of which the first still exists."""
    partner = Partner(s3_board, Blackboard.open("memory://"), ledger)
    for name in (FIRST, "2024-02-29/05/b.csv"):
        partner.put(name, "id\n1\n")
        partner.look()
    assert partner.held() == {HOUR: ["id\n1\n"] * 2}
