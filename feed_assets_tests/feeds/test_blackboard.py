"""The store: behaviour that all kinds share, and names of its failures."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from obstore.store import LocalStore

from feed_assets.core.errors import (
    BlackboardMissing,
    BlackboardRefused,
    BlackboardUnavailable,
    FeedAssetsError,
    InvalidName,
)
from feed_assets.core.feeds import File
from feed_assets.feeds import local_disk
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.local_disk import readable
from feed_assets.feeds.store_clients import LocalClient, ObstoreClient
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.servers import seaweedfs_server


def test_objects_come_back_sorted_by_key_with_their_size(board):
    for key in ("u/b/2", "u/b-1", "u/a", "u/b/10", "uu/x"):
        board.put(key, key.encode())
    assert [(file.key, file.size) for file in board.files("u")] == [
        ("u/a", 3),
        ("u/b-1", 5),
        ("u/b/10", 6),
        ("u/b/2", 5),
    ]


def test_children_are_the_names_one_level_down(board):
    for key in ("u/b/2", "u/a/x/y", "u/file", "v/c/1"):
        board.put(key, b"")
    assert board.children("u") == ["a", "b"]
    assert board.children("") == ["u", "v"]
    assert board.children("none") == []
    assert board.files("none") == ()


NAMES = [f"a{chr(code)}b" for code in range(1, 256) if chr(code) != "/"]
NAMES += [
    "%20",
    "%2F",
    "x#1",
    "#1",
    "~",
    "...",
    "..a",
    " a",
    "a ",
    "é",
    "e\u0301",
    "漢",
    "\u2028",
    "\udcff",
    "CON",
    "a\\b",
]


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch])
def test_a_local_listing_agrees_with_obstore_and_shows_names_that_it_refuses(tmp_path, make):
    store = LocalStore(tmp_path)
    for number, name in enumerate(NAMES):
        (tmp_path / str(number) / "ok").mkdir(parents=True)
        make(tmp_path / str(number) / name)
        theirs, ours = (
            children(client, str(number)) for client in (ObstoreClient(store), LocalClient(store, tmp_path))
        )
        is_odd = "\ufffd" in readable(name)
        shown = ["ok", readable(name)] if make is Path.mkdir else ["ok"]
        assert ours == (sorted(shown) if is_odd else theirs), name
        assert is_odd or not isinstance(theirs, str), name


@each_case("prefix", ["", "p/", "/p", "p/ok", "p//ok", ".", "..", "../x", "none", "p/none", "p/f", "p/./ok"])
def test_a_local_listing_takes_a_prefix_as_obstore_does(tmp_path, prefix):
    (tmp_path / "p" / "ok" / "below").mkdir(parents=True, exist_ok=True)
    (tmp_path / "p" / "f").touch()
    store = LocalStore(tmp_path)
    reported = [children(client, prefix) for client in (ObstoreClient(store), LocalClient(store, tmp_path))]
    assert reported[0] == reported[1]


def children(client, prefix: str) -> list[str] | str:
    """Return the names, or the class of the error."""
    try:
        return sorted(client.children(prefix))
    except Exception as error:  # noqa: BLE001
        return type(error).__name__


def test_an_object_is_created_once(board):
    assert board.create("k", b"first")
    assert not board.create("k", b"second")
    assert board.get("k") == b"first"


def test_an_object_is_overwritten_by_put(board):
    board.put("k", b"first")
    board.put("k", b"second")
    assert board.get("k") == b"second"


@each_case(("limit", "expected"), [(None, b"12345"), (6, b"12345"), (5, b"12345"), (3, b"123")])
def test_no_more_than_the_limit_is_read(board, limit, expected):
    board.put("k", b"12345")
    assert board.get("k", limit) == expected


def test_an_empty_object_is_there_and_a_missing_one_is_not(board):
    board.put("empty", b"")
    assert (board.get("empty", 5), board.get("empty"), board.get("none"), board.get("none", 5)) == (
        b"",
        b"",
        None,
        None,
    )


def test_object_metadata_are_read_without_the_bytes(board):
    board.put("f/a", b"abc")
    was = board.file("f/a")
    assert board.files("f") == (was,)
    board.put("f/a", b"abd")
    assert board.file("f/a") != was
    assert board.file("f/b") is None


def test_deleting_a_missing_object_is_no_error_and_does_not_stop_the_rest(board):
    board.put("a", b"")
    board.put("b", b"")
    board.delete(["none", "a", "none/2", "b"])
    board.delete(["a"])
    board.delete([])
    assert board.files("") == ()


def test_sweeping_removes_everything_below_and_nothing_beside(board):
    for key in ("u/a", "u/b/c", "uu/a", "v"):
        board.put(key, b"")
    assert board.sweep("u") == 2
    assert board.sweep("u") == 0
    assert [file.key for file in board.files("")] == ["uu/a", "v"]


CALLS = {
    "get": Blackboard.get,
    "stream": Blackboard.stream,
    "part": lambda board, key: board.part(key, 0, 1),
    "file": Blackboard.file,
    "files": Blackboard.files,
    "names": Blackboard.names,
    "page": Blackboard.page,
    "files_from": lambda board, key: board.files_from(key, f"{key}/a"),
    "file_pages": lambda board, key: [*board.file_pages(f"{key}/")],
    "page_of_files": lambda board, key: board.page_of_files(key, f"{key}/a"),
    "last_write": Blackboard.last_write,
    "half_written": Blackboard.half_written,
    "no_files": lambda board, key: board.no_files(key, below=True),
    "put": lambda board, key: board.put(key, b""),
    "create": lambda board, key: board.create(key, b""),
    "delete": lambda board, key: board.delete([key]),
    "sweep": Blackboard.sweep,
}
OUTSIDE = [
    "/",
    ".",
    "..",
    "../secret",
    "u/../../secret",
    "u/../a",
    "/u/a",
    "u//a",
    "u/./a",
    "u/",
    "a\0b",
    "a\nb",
    "\udcff",
]


def test_every_call_refuses_keys_that_may_leave_the_blackboard(board):
    board.put("u/a", b"")
    on_disk = {"half_written", "no_files"} if board._root is None else set()
    taken = list[tuple[str, str]]()
    for name, call in CALLS.items():
        for key in OUTSIDE:
            with suppress(InvalidName):
                call(board, key)
                taken.append((name, key))
    assert {name for name, _ in taken} == on_disk  # Which have nothing to say of other stores.
    assert [file.key for file in board.files("")] == ["u/a"]


def test_sweeping_never_removes_the_blackboard(board):
    board.put("u/a", b"")
    with pytest.raises(InvalidName, match="is not a valid key"):
        board.sweep("")
    assert len(board.files("")) == 1


def test_names_of_partners_that_only_look_odd_are_keys(board):
    for key in ("u/...", "u/..a", "u/a..", "u/a\\b", "u/ a", "u/\u202ea", "u/~", "u/%2e%2e"):
        board.put(key, key.encode())
        assert board.get(key) == key.encode()


@each_case("call", ["put", "create", "put of a file", "put_chunks"])
def test_a_folder_that_becomes_a_link_while_a_file_is_written_is_not_followed(call):
    """Each folder is exchanged right after it was opened and closed: between a check and the write, for example."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        root, theirs, content = Path(folder, "root"), Path(folder, "theirs"), Path(folder, "content")
        (root / "feed").mkdir(parents=True)
        theirs.mkdir()
        content.write_bytes(b"1")
        opened = local_disk.folder

        @contextmanager
        def exchanged(*arguments: Any) -> Iterator[int]:
            with opened(*arguments) as descriptor:
                yield descriptor
            if not (root / "feed").is_symlink():
                (root / "feed").rename(root / "kept")
                (root / "feed").symlink_to(theirs)

        board = Blackboard.open(f"file://{root}")
        patch.setattr(local_disk, "folder", exchanged)
        with suppress(InvalidName):
            if call == "put_chunks":
                board.put_chunks("feed/_SUCCESS", [b"1"])
            elif call == "create":
                board.create("feed/_SUCCESS", b"1")
            else:
                board.put("feed/_SUCCESS", b"1" if call == "put" else content)
        assert [*theirs.iterdir()] == []


def test_a_link_that_leads_outside_is_followed_by_no_call(local_board, tmp_path):
    root = tmp_path / "black board"
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"secret")
    local_board.put("u/a", b"")
    (root / "u" / "file").symlink_to(tmp_path / "outside" / "secret")
    (root / "u" / "folder").symlink_to(tmp_path / "outside")
    for name in ("get", "stream", "part", "file"):
        for key in ("u/file", "u/folder/secret"):
            with pytest.raises(InvalidName, match="is a symbolic link"):
                CALLS[name](local_board, key)
    for name in ("files", "names", "file_pages", "last_write"):
        with pytest.raises(InvalidName, match="is a symbolic link"):
            CALLS[name](local_board, "u/folder")
    local_board.put("u/file", b"ours")
    assert (tmp_path / "outside" / "secret").read_bytes() == b"secret"
    assert [file.key for file in local_board.files("u")] == ["u/a", "u/file"]


def test_sweeping_on_disk_removes_unlisted_files(local_board, tmp_path):
    folder = tmp_path / "black board" / "u"
    (folder / "empty").mkdir(parents=True)
    (folder / "half#1").touch()
    assert local_board.sweep("u") == 1
    assert not folder.exists()


def test_half_written_files_on_disk_are_listed_and_deleted(local_board, tmp_path):
    (tmp_path / "black board" / "u").mkdir()
    (tmp_path / "black board" / "u" / "half#1").write_bytes(b"123")
    assert local_board.files("u") == (File("u/half#1", 3),)
    for name in ("get", "stream", "file"):
        with pytest.raises(InvalidName, match="a key that is not valid on every store"):
            CALLS[name](local_board, "u/half#1")
    local_board.delete(["u/half#1"])
    assert local_board.files("u") == ()


def test_download_returns_the_served_file(board, tmp_path):
    board.put("u/a", b"123")
    assert board.download("u/a", tmp_path / "copy") == board.files("u")[0]
    assert (tmp_path / "copy").read_bytes() == b"123"
    assert board.download("u/none", tmp_path / "none") is None
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith((".", "none"))] == []


def test_a_target_that_cannot_be_written_is_not_the_stores_fault(board, tmp_path):
    board.put("u/a", b"123")
    with pytest.raises(FileNotFoundError):
        board.download("u/a", tmp_path / "no folder" / "copy")


@each_case(
    ("url", "error", "message"),
    [
        ("lake", InvalidName, "expected a URL that begins with"),
        ("/lake", InvalidName, "expected a URL that begins with"),
        ("ftp://host/lake", InvalidName, "expected a URL that begins with"),
        ("file://lake/x", InvalidName, "expected file:///an/absolute/path"),
        ("file:///no/such/folder", BlackboardMissing, "the folder does not exist. Create it"),
        (Path(__file__).as_uri(), BlackboardMissing, "is a file: expected a folder"),
    ],
)
def test_an_invalid_blackboard_url_is_refused_at_opening(url, error, message):
    with pytest.raises(error, match=message):
        Blackboard.open(url)


def test_a_missing_blackboard_of_others_is_not_suggested_to_be_created(tmp_path):
    url = (tmp_path / "theirs").as_uri()
    with pytest.raises(BlackboardMissing, match=r"\(the blackboard 'them'\): .* It belongs to another team: mount it"):
        Blackboard.open(url, name="them")
    (tmp_path / "theirs").mkdir()
    board = Blackboard.open(url, name="them")
    (tmp_path / "theirs").rmdir()
    with pytest.raises(BlackboardMissing, match=r"'them'\) is gone\. It belongs to another team: mount it"):
        board.files("out")


@pytest.mark.parametrize(
    "write",
    [
        lambda board: board.put("k", b"2"),
        lambda board: board.create("new", b"2"),
        lambda board: board.delete(["k"]),
        lambda board: board.sweep("k"),
    ],
    ids=["put", "create", "delete", "sweep"],
)
@pytest.mark.parametrize("store", ["local", "s3"])
def test_a_blackboard_of_others_is_never_written(store, write, tmp_path, request):
    url, env = tmp_path.as_uri(), None
    if store == "s3":
        url, env = request.getfixturevalue("s3_url"), request.getfixturevalue("s3_env")
    endpoint = env.endpoint if env else None
    ours, theirs = Blackboard.open(url, endpoint=endpoint), Blackboard.open(url, endpoint=endpoint, name="them")
    ours.put("k", b"1")
    with pytest.raises(
        BlackboardRefused, match=r"'them'\).*: (k|new) is not changed, because .* another team\. Have its owner"
    ):
        write(theirs)
    assert [file.key for file in ours.files("")] == ["k"]
    assert theirs.get("k") == b"1"


def test_a_folder_is_made_only_when_asked(tmp_path):
    url = (tmp_path / "a b" / "lake").as_uri()
    Blackboard.open(url, create=True).put("k", b"1")
    assert Blackboard.open(url).get("k") == b"1"
    assert Blackboard.open(url).url == url


def test_a_folder_that_is_gone_is_not_an_empty_blackboard(local_board, tmp_path):
    (tmp_path / "black board").rmdir()
    for operation in operations(local_board):
        with pytest.raises(BlackboardMissing, match=r"is gone\. Mount or create it again"):
            operation()
    assert not (tmp_path / "black board").exists()


def operations(board):
    """Every call that accesses the store."""
    return [
        lambda: board.children("u"),
        lambda: board.files("u"),
        lambda: board.get("u/a"),
        lambda: board.put("u/a", b""),
        lambda: board.create("u/new", b""),
        lambda: board.delete(["u/a"]),
        lambda: board.sweep("u"),
        lambda: board.download("u/a", Path(os.devnull)),
    ]


@pytest.mark.parametrize(("key", "secret"), [("admin", "wrong"), ("nobody", "admin-secret")])
def test_wrong_credentials_are_refused_and_never_read_as_no_data(s3_url, s3_env, monkeypatch, key, secret):
    Blackboard.open(s3_url, endpoint=s3_env.endpoint).put("u/a", b"")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    board = Blackboard.open(s3_url, endpoint=s3_env.endpoint)
    for operation in operations(board):
        with pytest.raises(BlackboardRefused, match="access refused"):
            operation()


def test_a_reader_may_read_and_is_refused_when_it_writes(s3_url, s3_env):
    Blackboard.open(s3_url, endpoint=s3_env.endpoint).put("u/a", b"1")
    board = Blackboard.open(s3_url, endpoint=s3_env.endpoint, credentials=keys(s3_env.reader_key, s3_env.reader_secret))
    assert board.get("u/a") == b"1"
    for refused in (lambda: board.put("u/b", b""), lambda: board.create("u/b", b""), lambda: board.delete(["u/a"])):
        with pytest.raises(BlackboardRefused):
            refused()


def test_a_missing_bucket_differs_from_a_missing_key(s3_env):
    reader = keys(s3_env.reader_key, s3_env.reader_secret)
    board = Blackboard.open("s3://nosuchbucket", endpoint=s3_env.endpoint, credentials=reader)
    for read in (lambda: board.children("u"), lambda: board.files("u"), lambda: board.get("u/a")):
        with pytest.raises(BlackboardMissing, match="there is no such bucket"):
            read()


def test_missing_credentials_are_reported_with_the_settings(s3_env, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(BlackboardRefused, match="Set AWS_PROFILE, or AWS_ACCESS_KEY_ID"):
        Blackboard.open("s3://lake", endpoint=s3_env.endpoint)


def test_a_profile_that_does_not_exist_is_refused(s3_env, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(BlackboardRefused, match="nobody"):
        Blackboard.open("s3://lake", endpoint=s3_env.endpoint)


def test_credentials_come_from_a_profile(s3_url, s3_env, monkeypatch, tmp_path):
    (tmp_path / "credentials").write_text(
        f"[lake]\naws_access_key_id = {s3_env.access_key}\naws_secret_access_key = {s3_env.secret_key}\n"
    )
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "lake")
    board = Blackboard.open(s3_url, endpoint=s3_env.endpoint)
    assert board.create("k", b"1")


def test_the_endpoint_comes_from_the_environment_if_it_is_not_given(s3_board, s3_url):
    s3_board.put("k", b"1")
    assert Blackboard.open(s3_url).get("k") == b"1"


def test_a_bucket_can_be_a_blackboard_without_a_prefix(bucket, s3_env, s3_url, s3_board):
    s3_board.put("k", b"1")
    assert Blackboard.open(f"s3://{bucket}", endpoint=s3_env.endpoint).get(f"{s3_url.rsplit('/', 1)[-1]}/k") == b"1"


def test_credentials_that_cannot_be_renewed_are_refused(s3_url, s3_env):
    def expired():
        raise RuntimeError("the session has expired")

    with pytest.raises(BlackboardRefused, match="the session has expired"):
        Blackboard.open(s3_url, endpoint=s3_env.endpoint, credentials=expired).files("u")


def test_a_listing_takes_the_credentials_of_its_moment(s3_board, s3_url, s3_env):
    s3_board.put("u/1/k", b"1")
    given = [keys("admin", "of-before"), keys(s3_env.access_key, s3_env.secret_key)]
    board = Blackboard.open(s3_url, endpoint=s3_env.endpoint, credentials=lambda: given[0]())
    with pytest.raises(BlackboardRefused):
        board.page("u", "")
    del given[0]
    assert board.page("u", "").names == ("1",)


def test_a_server_that_is_down_is_unavailable_and_not_empty(tmp_path):
    with seaweedfs_server(tmp_path / "weed") as server:
        server.client().create_bucket(Bucket="lake")
        board = Blackboard.open("s3://lake", endpoint=server.endpoint, credentials=keys("admin", "admin-secret"))
        board.put("k", b"1")
    for operation in operations(board):
        with pytest.raises(BlackboardUnavailable, match=r"the store failed .* Check the endpoint"):
            operation()


def test_every_error_is_one_line_without_keys(s3_url, s3_env):
    board = Blackboard.open(s3_url, endpoint=s3_env.endpoint, credentials=keys("admin", "hidden-secret"))
    with pytest.raises(FeedAssetsError) as caught:
        board.files("u")
    assert "\n" not in str(caught.value)
    assert "hidden-secret" not in str(caught.value)
    assert s3_url in str(caught.value)


def keys(access_key, secret_key):
    """Return a credential provider with fixed keys."""
    return lambda: {"access_key_id": access_key, "secret_access_key": secret_key, "token": None, "expires_at": None}


def test_a_listing_can_begin_at_a_key_and_an_object_be_read_from_a_byte_on(board):
    for number in (1, 2, 10, 11):
        board.put(f"events/{number:02d}.jsonl", b"0123456789" * number)
    days = [f"deeper/2010/{day}" for day in ("11/30.csv", "12/01.csv", "12/31.csv")] + ["deeper/2011/01/01.csv"]
    for key in days:
        board.put(key, b"")
    named = [file.key for file in board.files_from("events", "events/10.jsonl")]
    assert named == ["events/10.jsonl", "events/11.jsonl"]
    board.put("events/10.jsona", b"")  # A store lists it after `events/10.json`, from which it is asked.
    assert [file.key for file in board.files_from("events", "events/10.jsonl")] == named
    board.delete(["events/10.jsona"])
    for number, key in enumerate(days):
        assert [file.key for file in board.files_from("deeper", key)] == days[number:]
    assert len(board.files_from("events", "")) == 4
    assert board.files_from("none", "") == ()
    served, chunks = board.stream("events/02.jsonl", 17)
    assert (served, b"".join(chunks)) == (board.files_from("events", "")[1], b"789")
    assert board.stream("events/03.jsonl") is None


def test_a_listing_from_a_key_on_warns_only_of_names_that_no_other_store_allows(local_board, tmp_path, caplog):
    local_board.put("events/1.jsonl", b"1")
    assert len(local_board.files_from("events", "events/0")) == 1
    assert caplog.messages == []
    (named,) = tmp_path.rglob("1.jsonl")
    named.with_name("2\n.jsonl").write_bytes(b"2")
    assert [file.key for file in local_board.files_from("events", "events/0")] == ["events/1.jsonl"]
    (message,) = caplog.messages
    assert "2\N{REPLACEMENT CHARACTER}.jsonl" in message
    assert "rename it" in message
