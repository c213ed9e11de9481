"""Other users of a warehouse gain no rights through the loader, and stop only their own tables."""

import subprocess
import sys
from collections.abc import Iterator
from uuid import uuid4

import duckdb
import psycopg
import pyarrow as pa
import pytest
import sqlalchemy as sa

from feed_assets.core.errors import InvalidSetting, LoadFailed, SourceUnavailable, TableBusy, WarehouseUnavailable
from feed_assets.core.feeds import Feed
from feed_assets.core.sql_text import quoted
from feed_assets.sources.warehouse_events import TableLoads
from feed_assets.warehouse import dataset_state, duck, load_state, reset
from feed_assets.warehouse.target import engine_of
from feed_assets_tests.support.warehouse_datasets import Dataset, check_table, load, row, table, target_of

PLANTED = """
CREATE FUNCTION public.equals_{2}({0}, {1}) RETURNS boolean LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO public.ran VALUES (current_user); RETURN $1::text = $2::text; END $$;
CREATE OPERATOR public.= (LEFTARG = {0}, RIGHTARG = {1}, FUNCTION = public.equals_{2})
"""
TYPES = (
    ("information_schema.sql_identifier", "information_schema.sql_identifier"),
    ("varchar", "varchar"),
    ("text", "name"),
)

KILLED = """
import duckdb, os, sys
connection = duckdb.connect(sys.argv[1])
connection.execute("CREATE MACRO max(a) AS 1")
os._exit(1)
"""

RAISE = """
CREATE OR REPLACE FUNCTION public.raise() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '{}'; END $$
"""


UPDATE = "INSERT INTO feed_assets.updates VALUES ({}, {}, {}, NULL, 3, {});"
TABLE = "INSERT INTO feed_assets.tables VALUES ({0}, 1, {1}, NULL, NULL);"
POSITION = TABLE + "INSERT INTO feed_assets.positions VALUES ({0}, {2}, {3}, 0, {4})"
STATE_ROWS = {
    "a long key": (UPDATE.format("'x/y'", "repeat('k', 600)", "'u'", "now()"), "updates: partition key 'kkk"),
    "a long update id": (UPDATE.format("'x/y'", "'k'", "repeat('u', 70000)", "now()"), "the context has 7"),
    "no name of a dataset": (UPDATE.format("'no name!!//'", "'k'", "'u'", "now()"), "feed_assets.updates: "),
    "a time before 1970": (UPDATE.format("'x/y'", "'k'", "'u'", "'0044-01-01 BC'"), ""),
    "a time before all others": (UPDATE.format("'x/y'", "'k'", "'u'", "'-infinity'"), ""),
    "a broken shape": (UPDATE.format("'x/y'", "'k'", "'u'", "now()") + TABLE.format("'x/y'", "'{'"), "was altered"),
    "an offset below 0": (POSITION.format("'t'", "NULL", 0, -5, "now()"), "out of range"),
    "a time of a topic": (POSITION.format("'t'", "NULL", 0, 5, "'infinity'"), "no load can have written the time"),
    "no name of a topic": (POSITION.format("E't\\n'", "NULL", 0, 5, "now()"), "feed_assets.positions: "),
    "a broken shape of a topic": (POSITION.format("'x/y'", "'{'", 0, 5, "now()"), "was altered"),
}
"""Rows that another role adds to the state tables, and the reason of the reject; '' means no reject."""

PLANTED_RELATIONS = {
    "TRIGGER": "CREATE TRIGGER planted BEFORE UPDATE ON feed_assets.lease FOR EACH ROW EXECUTE FUNCTION public.ran()",
    "RULE": "CREATE RULE planted AS ON UPDATE TO feed_assets.lease DO ALSO SELECT public.ran_too()",
}
FUNCTIONS = """
CREATE TABLE public.ran (role text); GRANT INSERT ON public.ran TO PUBLIC;
CREATE FUNCTION public.ran_too() RETURNS boolean LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO public.ran VALUES (current_user); RETURN true; END $$;
CREATE FUNCTION public.ran() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM public.ran_too(); RETURN NEW; END $$
"""
"""Functions of another role that note who has run them."""

PLANTED_INDEXES = """
CREATE FUNCTION public.ran_at_once(int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
$$ BEGIN RETURN public.ran_too(); END $$;
CREATE INDEX planted ON feed_assets.tables (schema_id) WHERE public.ran_at_once(1);
CREATE INDEX planted_too ON feed_assets.updates (records) WHERE public.ran_at_once(1)
"""


@pytest.fixture
def own_url(postgresql) -> str:
    """Return the URL of a database for one test only."""
    return postgresql.database()


@pytest.fixture
def owner(own_url: str) -> Iterator[psycopg.Connection]:
    """Provide a connection of somebody who may create objects in the schema of the tables."""
    with psycopg.connect(own_url.replace("+psycopg", ""), autocommit=True) as connection:
        yield connection


@pytest.fixture
def pair(local_board, ledger) -> tuple[Dataset, Dataset]:
    one, other = (Dataset(local_board, ledger, Feed.parse(f"ads/{name}/v1.0")) for name in ("a", "b"))
    for each in (one, other):
        each.publish("1", row(1))
    return one, other


def test_no_operator_of_another_role_runs_in_a_load(own_url, owner, pair):
    one, _ = pair
    target = target_of(own_url)
    owner.execute("CREATE TABLE public.ran (role text)")
    for number, (left, right) in enumerate(TYPES):
        owner.execute(PLANTED.format(left, right, number))
    load(target, one)
    one.publish("1", row(2))
    load(target, one)
    assert owner.execute("SELECT * FROM public.ran").fetchall() == []
    check_table(target.engine, one)


def test_a_trigger_that_raises_a_temporary_error_delays_only_its_table(own_url, owner, pair):
    one, other = pair
    target = target_of(own_url)
    load(target, one, other)
    owner.execute(RAISE.format("40001"))
    owner.execute(f"CREATE TRIGGER t BEFORE INSERT ON {quoted(one.name)} FOR EACH ROW EXECUTE FUNCTION public.raise()")
    for number, code in enumerate(("40001", "08006", "28000"), 2):
        owner.execute(RAISE.format(code))
        for each in pair:
            each.publish("1", row(number))
        with pytest.raises(TableBusy, match="the server ended a statement: not now"):
            load(target, one, other)
        check_table(target.engine, other)
    owner.execute(f"DROP TRIGGER t ON {quoted(one.name)}")
    load(target, one, other)
    check_table(target.engine, one)


def test_only_the_end_of_the_session_makes_a_warehouse_unavailable(own_url):
    engine = engine_of(own_url)
    codes = [code for each in vars(psycopg.errors).values() if isinstance(code := getattr(each, "sqlstate", None), str)]
    assert len(codes) > 200
    with engine.open() as connection:
        for code in codes:
            connection.execute("BEGIN")
            with pytest.raises((TableBusy, LoadFailed), match="not now"):
                connection.execute(f"DO $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '{code}'; END $$")
            connection.execute("ROLLBACK")
        with pytest.raises(WarehouseUnavailable, match="the warehouse cannot do it now") as ended:
            connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    assert not isinstance(ended.value, TableBusy)


@pytest.mark.parametrize("time", ["294276-12-31 23:59:59.999999+00", "infinity", "-infinity", "0044-03-15 BC"])
def test_a_time_that_no_load_has_written_stops_only_its_table(own_url, owner, pair, time):
    one, other = pair
    target = target_of(own_url)
    load(target, one, other)
    owner.execute("UPDATE feed_assets.updates SET loaded_at = %s WHERE dataset = %s", (time, one.name))
    for each in pair:
        each.publish("1", row(2))
    with pytest.raises(LoadFailed, match=r"updates was altered .* a time of a load from 1970 on that is not in"):
        load(target, one, other)
    check_table(target.engine, other)
    with target.engine.open() as connection:
        assert [each.dataset for each in dataset_state.loads(connection, target.engine)] == [other.name]


def test_a_row_that_no_load_has_written_holds_up_no_other_event(own_url, owner, pair, subtests):
    load(target := target_of(own_url), *pair)
    reader = TableLoads("main", target.engine)
    for case, (statement, reason) in STATE_ROWS.items():
        with subtests.test(msg=case):
            for table in ("updates WHERE dataset", "positions WHERE topic", "tables WHERE topic"):
                owner.execute(f"DELETE FROM feed_assets.{table} NOT LIKE 'ads/%'")
            owner.execute(statement)
            batch = reader.read(None, 5000, 30)
            assert {f"main/{each.name}" for each in pair} == {each.table_name for each in batch.events} - {"main/x/y"}
            reasons = " ".join(each.reason for each in batch.rejected)
            assert reason in reasons
            assert bool(reasons) == bool(reason)
            again = reader.read(batch.position, 5000, 30)
            assert (again.events, again.rejected, again.is_complete) == ((), (), True)


def test_a_new_schema_in_front_of_the_search_path_gets_no_rows(own_url, owner, pair):
    one, _ = pair
    load(target_of(own_url), one)
    schema = sa.make_url(own_url).username
    owner.execute("CREATE ROLE stranger")
    owner.execute(
        f'CREATE SCHEMA "{schema}"; CREATE TABLE "{schema}".{quoted(one.name)} (LIKE public.{quoted(one.name)})'
    )
    owner.execute(f'ALTER TABLE "{schema}".{quoted(one.name)} OWNER TO stranger')
    one.publish("1", row(2))
    with pytest.raises(LoadFailed, match=f"{one.name} is in the schema public, but rows would now go to another one"):
        load(target_of(own_url), one)
    owner.execute(f'DROP SCHEMA "{schema}" CASCADE; DROP ROLE stranger')
    load(target := target_of(own_url), one)
    check_table(target.engine, one)


@pytest.mark.parametrize("name", ["greatest", "=", "duckdb_functions", "MAX"])
def test_a_macro_that_replaces_a_function_of_duckdb_stops_the_loads(tmp_path, pair, name):
    one, _ = pair
    path = tmp_path / "warehouse.db"
    load(target := target_of(f"duckdb://{path}"), one)
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE MACRO harmless(a) AS a")
        connection.execute(f"CREATE MACRO {quoted(name)}(a := NULL, b := NULL) AS (SELECT 1)")
    one.publish("1", row(2))
    with pytest.raises(LoadFailed, match=f'has a macro {name.lower()}, which replaces .* DROP MACRO "{name.lower()}"'):
        load(target, one)
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"DROP MACRO {quoted(name)}")
    load(target, one)
    check_table(target.engine, one)


def test_a_trigger_in_a_file_of_duckdb_stops_the_loads_before_it_runs(tmp_path, pair):
    one, _ = pair
    path = tmp_path / "warehouse.db"
    load(target := target_of(f"duckdb://{path}"), one)
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE loot (a text)")
        connection.execute(
            "CREATE TRIGGER thief AFTER UPDATE ON feed_assets.lease FOR EACH STATEMENT "
            "INSERT INTO loot SELECT content FROM read_text('/proc/self/environ')"
        )
    one.publish("1", row(2))
    with pytest.raises(LoadFailed, match=r'a trigger thief .* DROP TRIGGER "thief" ON "feed_assets"\."lease"'):
        load(target, one)
    with duckdb.connect(str(path)) as connection:
        assert connection.execute("FROM loot").fetchall() == []
        connection.execute('DROP TRIGGER "thief" ON "feed_assets"."lease"')
    load(target, one)
    check_table(target.engine, one)


def test_a_macro_that_a_killed_process_left_in_the_log_of_the_file_stops_the_loads(tmp_path, pair):
    one, _ = pair
    path = tmp_path / "warehouse.db"
    load(target := target_of(f"duckdb://{path}"), one)
    load(target, one)
    killed = (
        "import duckdb, os, sys; c = duckdb.connect(sys.argv[1]); c.execute('CREATE MACRO max(a) AS 1'); os._exit(1)"
    )
    before = path.stat().st_ctime_ns
    subprocess.run([sys.executable, "-c", killed, str(path)], check=False)
    assert path.stat().st_ctime_ns == before, "the change is only in the log"
    one.publish("1", row(2))
    with pytest.raises(LoadFailed, match="has a macro max"):
        load(target, one)


def test_macros_are_checked_again_only_after_a_change_of_the_file(tmp_path, monkeypatch):
    checks = list[None]()
    monkeypatch.setattr(duck, "_refuse_code", lambda _: checks.append(None))
    engine = engine_of(f"duckdb://{tmp_path / 'warehouse.db'}")
    for _ in range(3):
        with engine.open() as connection:
            connection.execute("SELECT 1")
    assert len(checks) == 1
    with engine.open() as connection:
        connection.execute("CREATE TABLE changed (n int)")
    with engine.open():
        assert len(checks) == 2


def test_a_lease_with_an_endless_time_names_what_to_do(own_url, owner, pair):
    one, _ = pair
    load(target := target_of(own_url), one)
    owner.execute("UPDATE feed_assets.lease SET holder = 'x', seen_at = 'infinity'")
    with pytest.raises(LoadFailed, match=r"lease was altered by somebody else: .* DELETE FROM feed_assets.lease"):
        load(target, one)


def test_tables_are_in_the_first_schema_of_the_users_search_path(own_url, owner, pair):
    one, _ = pair
    owner.execute("CREATE SCHEMA loaded")
    name = sa.make_url(own_url).database
    owner.execute(f"ALTER DATABASE {name} SET search_path = loaded, public")
    load(target := target_of(own_url), one)
    assert owner.execute(
        "SELECT table_schema FROM information_schema.tables WHERE table_name = %s", (one.name,)
    ).fetchall() == [("loaded",)]
    assert table(target.engine, one, "id") == [(1,)]
    owner.execute(f"ALTER DATABASE {name} SET search_path = nowhere")
    with pytest.raises(InvalidSetting, match="names no schema that exists"):
        engine_of(own_url).table("a")


@pytest.fixture
def roles(own_url, owner) -> Iterator[tuple[str, str]]:
    """Make a role for the loader, and one of somebody else. Both may create schemas in the database."""
    loader, stranger = (f"{each}_{uuid4().hex[:8]}" for each in ("loader", "stranger"))
    owner.execute(
        f"CREATE ROLE {loader} LOGIN; CREATE ROLE {stranger} LOGIN; GRANT CREATE ON SCHEMA public TO {loader}"
    )
    owner.execute(f"GRANT CREATE ON DATABASE {sa.make_url(own_url).database} TO {loader}, {stranger}")
    yield loader, stranger
    owner.execute(f"REASSIGN OWNED BY {loader}, {stranger} TO current_user; DROP OWNED BY {loader}, {stranger}")
    owner.execute(f"DROP ROLE {loader}, {stranger}")


def url_as(url: str, role: str) -> str:
    return sa.make_url(url).set(username=role).render_as_string(hide_password=False)


def make_state(url: str, maker: str, user: str) -> None:
    """Have a role make the state tables in their expected form, and grant them to another one."""
    engine = engine_of(url_as(url, maker))
    with engine.open() as connection:
        creates = [each.create(engine) for each in dataset_state._TABLES]
        for each in (*load_state.create(engine), *creates):
            connection.execute(each)
        connection.execute(f"GRANT USAGE, CREATE ON SCHEMA feed_assets, feed_assets_deleted TO {user}")
        connection.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA feed_assets TO {user}")


@pytest.mark.parametrize("name", ["feed_assets", "feed_assets_deleted", "$user"])
def test_a_schema_of_another_role_gets_no_tables(own_url, owner, pair, roles, name):
    loader, stranger = roles
    schema, target = name.replace("$user", loader), target_of(url_as(own_url, loader))
    owner.execute(f"SET ROLE {stranger}; CREATE SCHEMA {schema}; GRANT ALL ON SCHEMA {schema} TO PUBLIC; RESET ROLE")
    with pytest.raises(LoadFailed, match=f"the schema {schema} belongs to {stranger}: expected {loader}, ") as refused:
        load(target, pair[0])
    assert owner.execute("SELECT 1 FROM pg_tables WHERE tableowner = %s", (loader,)).fetchall() == []
    statement = f"ALTER SCHEMA {schema} OWNER TO {quoted(loader)};"
    assert statement in str(refused.value)
    owner.execute(statement)
    load(target, pair[0])
    assert len(owner.execute("SELECT 1 FROM pg_tables WHERE tablename = %s", (pair[0].name,)).fetchall()) == 1


def test_state_tables_that_another_role_makes_just_before_the_loader_are_refused(own_url, pair, roles, monkeypatch):
    loader, stranger = roles
    monkeypatch.setattr(load_state, "_create", lambda *_: make_state(own_url, stranger, loader))
    with pytest.raises(LoadFailed, match=f"the schema feed_assets belongs to {stranger}"):
        load(target_of(url_as(own_url, loader)), pair[0])


@pytest.mark.parametrize("is_superuser", [False, True])
@pytest.mark.parametrize("kind", PLANTED_RELATIONS)
def test_no_function_of_the_role_that_made_the_state_tables_first_runs_in_a_load(
    own_url, owner, pair, roles, kind, is_superuser
):
    loader, stranger = roles
    owner.execute(f"ALTER ROLE {loader} {'SUPERUSER' if is_superuser else 'NOSUPERUSER'}")
    make_state(own_url, stranger, loader)
    owner.execute(f"{FUNCTIONS}; GRANT CREATE ON SCHEMA public TO {stranger}; SET ROLE {stranger}")
    owner.execute(f"{PLANTED_RELATIONS[kind]}; RESET ROLE")
    target = target_of(url_as(own_url, loader))
    for expected, mend in (
        (f"the schema feed_assets belongs to {stranger}", f"ALTER SCHEMA feed_assets OWNER TO {loader}"),
        (
            f"the schema feed_assets_deleted belongs to {stranger}",
            f"ALTER SCHEMA feed_assets_deleted OWNER TO {loader}",
        ),
        (f"the table feed_assets.lease belongs to {stranger}", f"REASSIGN OWNED BY {stranger} TO {loader}"),
        (
            rf"feed_assets.lease has the {kind.lower()} planted: .* DROP {kind} planted ON feed_assets.lease;",
            "SELECT 1",
        ),
    ):
        with pytest.raises(LoadFailed, match=expected):
            load(target, pair[0])
        with pytest.raises(LoadFailed, match=expected), target.engine.open() as connection:
            reset.apply(connection, target.engine, "the test", 30, ())
        owner.execute(mend)
    assert owner.execute("SELECT * FROM public.ran").fetchall() == []
    owner.execute(f"DROP {kind} planted ON feed_assets.lease")
    load(target, pair[0])
    assert table(engine_of(own_url), pair[0], "id") == [(1,)]


def test_no_policy_of_another_role_runs_when_the_state_is_read(own_url, owner, roles):
    """A policy's function runs with the rights of who reads, such as a sensor with the loader's URL."""
    loader, stranger = roles
    make_state(own_url, stranger, loader)
    owner.execute(f"{FUNCTIONS}; SET ROLE {stranger}; ALTER TABLE feed_assets.tables ENABLE ROW LEVEL SECURITY")
    owner.execute("INSERT INTO feed_assets.tables VALUES ('t'); RESET ROLE")
    owner.execute("CREATE POLICY planted ON feed_assets.tables USING (public.ran_too())")
    with engine_of(url_as(own_url, loader)).open() as connection, pytest.raises(LoadFailed, match="row-level security"):
        load_state.tables(connection)
    assert owner.execute("SELECT * FROM public.ran").fetchall() == []


def test_no_index_of_another_role_runs_when_the_state_is_read(own_url, owner, roles):
    """PostgreSQL runs the function in an index's predicate while it plans a query, with the rights of the reader."""
    loader, stranger = roles
    make_state(own_url, stranger, loader)
    owner.execute(f"{FUNCTIONS}; GRANT CREATE ON SCHEMA public TO {stranger}; SET ROLE {stranger}")
    owner.execute(PLANTED_INDEXES)
    owner.execute("RESET ROLE; TRUNCATE public.ran")
    reader = TableLoads("main", engine_of(url_as(own_url, loader)))
    for expected, repair in (
        (f"the schema feed_assets belongs to {stranger}", f"REASSIGN OWNED BY {stranger} TO {loader}"),
        (
            "feed_assets.tables has the index planted: .* DROP INDEX feed_assets.planted;",
            "DROP INDEX feed_assets.planted",
        ),
        ("feed_assets.updates has the index planted_too: ", "DROP INDEX feed_assets.planted_too"),
    ):
        with pytest.raises(SourceUnavailable, match=expected):
            reader.read(None, 100, 30)
        with reader.engine.open() as connection, pytest.raises(LoadFailed, match=expected):
            dataset_state.loads(connection, reader.engine)
        owner.execute(repair)
    assert owner.execute("SELECT * FROM public.ran").fetchall() == []
    assert reader.read(None, 100, 30).events == ()


@pytest.mark.parametrize("maker", ["a superuser", "the owner of the database", "a role of the loader"])
def test_state_tables_that_a_trusted_role_has_made_are_used(own_url, owner, pair, roles, maker):
    loader, other = roles
    if maker == "the owner of the database":
        owner.execute(f"ALTER DATABASE {sa.make_url(own_url).database} OWNER TO {other}")
    elif maker == "a role of the loader":
        owner.execute(f"GRANT {other} TO {loader}")
    make_state(own_url, sa.make_url(own_url).username if maker == "a superuser" else other, loader)
    load(target_of(url_as(own_url, loader)), pair[0])
    check_table(engine_of(url_as(own_url, loader)), pair[0])


@pytest.mark.parametrize("kind", ["VIEW", "MATERIALIZED VIEW"])
def test_a_view_that_stops_a_change_of_a_type_is_named_with_what_to_do(own_url, owner, pair, kind):
    one, other = pair
    before, after = (pa.schema([("id", each), ("text", pa.string())]) for each in (pa.int32(), pa.int64()))
    for each in pair:
        each.publish("1", row(1), schema=before)
    load(target := target_of(own_url), *pair)
    owner.execute(f'CREATE SCHEMA reader; CREATE {kind} reader."my view" AS SELECT * FROM public.{quoted(one.name)}')
    for each in pair:
        each.publish("2", row(2), schema=after)
    drop = f'DROP {kind} reader."my view";'
    advice = f"Have its owner execute: {drop} Start the loader again, and then make it again"
    with pytest.raises(LoadFailed, match=f"cannot alter type of a column .*{advice}"):
        load(target, *pair)
    check_table(target.engine, other)
    drops_column = f"ALTER TABLE public.{quoted(one.name)} DROP COLUMN text"
    with pytest.raises(LoadFailed, match=f"cannot drop .*{advice}"), target.engine.open() as connection:
        connection.execute(drops_column)
    owner.execute(drop)
    load(target, *pair)
    check_table(target.engine, one)
