"""Fixtures for all tests: a real S3 server, one Spark session, a blackboard on each kind of store, a ledger, a home."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from dagster_pyspark import LazyPySparkResource
from pyspark import java_gateway

from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import database
from feed_assets.ledger.database import Ledger, open_ledger
from feed_assets.settings import Settings, settings
from feed_assets_tests import tiers
from feed_assets_tests.support import jvm_class_cache, memory_tmp, speedups
from feed_assets_tests.support.forked_processes import LATER, Forks, forks
from feed_assets_tests.support.kafka_servers import Broker, Registry
from feed_assets_tests.support.longest_files import LONGEST, TESTS
from feed_assets_tests.support.servers import BUCKET, PARTNERS, PostgreSQL, S3Server, fetched, partner_settings
from feed_assets_tests.support.shared_servers import shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

hypothesis.settings.register_profile(  # a busy machine must not fail a test
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")
memory_tmp.prepare()
speedups.prepare()
os.environ.setdefault("SPARK_DRIVER_MEMORY", "1g")  # In place of a share of the machine: some tests run beside others.
os.environ.setdefault("SPARK_SUBMIT_OPTS", jvm_class_cache.options())  # for Spark here and in what tests start
for number, action in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:  # as in the background of a shell; children would inherit it
        signal.signal(number, action)
_PREFIXES = count(1)
_START_SPARK, _START_JAVA = LazyPySparkResource._init_session, java_gateway.launch_gateway


def _refuse_to_start_spark(*_: object) -> None:
    pytest.fail("this test starts Spark: let it ask for the fixture `spark`")


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its tier, and put the longest files first, so that no worker is left without work."""
    partition = {TESTS / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: partition.get(item.path, len(partition)))
    tiers.mark(items)
    if [Path(each).resolve() for each in config.args] == [TESTS]:
        config.stash[tiers.IN_MAKE_TEST] = tiers.in_make_test(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let each test read its own settings, and keep Spark from tests that do not request `spark`.

    A process has one JVM, and its first user configures it.
    """
    settings.cache_clear()  # The cached settings may be another test's.
    asked = "spark" in getattr(item, "fixturenames", ())
    LazyPySparkResource._init_session = _START_SPARK if asked else _refuse_to_start_spark
    java_gateway.launch_gateway = _START_JAVA if asked else _refuse_to_start_spark


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Fail a test of the tier fast that used a server, after its teardown."""
    servers = tiers.servers_of(item) if tiers.tier_of(item) is tiers.Tier.FAST else []
    yield
    if servers:
        pytest.fail(f"found {servers} in a test of the tier fast; expected none: put its file into another in tiers.py")


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that all workers of the session share."""
    mine = tmp_path_factory.getbasetemp()
    return mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine


@pytest.fixture(scope="session")
def seaweedfs(session_folder: Path) -> Iterator[S3Server]:
    """Yield the SeaweedFS server of the session."""
    with shared("seaweedfs", session_folder) as address:
        yield S3Server(**address)


@pytest.fixture
def s3_env(seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """Return the server, and put its address and its admin's keys into the environment."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in seaweedfs.env.items():
        monkeypatch.setenv(name, value)
    return seaweedfs


@pytest.fixture(scope="session")
def bucket(seaweedfs: S3Server) -> str:
    """Return the only bucket of the session."""
    return BUCKET


@pytest.fixture(scope="session")
def s3a_jars() -> Path:
    """Return the folder of the jars that Spark needs for S3. Fetch them if they are missing."""
    return fetched("s3a")


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> "Iterator[SparkSession]":
    """Yield the one Spark session of the process: local with s3a, or over Connect if FEED_ASSETS_SPARK_REMOTE is set.

    Its JVM finds the keys of the S3 server in the environment, as a user's session does.
    """
    from feed_assets.spark.session import session

    if Settings().spark_remote:
        yield session(Settings())
        return
    server: S3Server = request.getfixturevalue("seaweedfs")
    jars: Path = request.getfixturevalue("s3a_jars")
    # This one session writes to folders without checksum files, so for S3 it cannot buffer on disk.
    more = {"spark.log.level": "OFF", "spark.hadoop.fs.s3a.fast.upload.buffer": "array"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.env.items():
            patch.setenv(name, value)
        others = {
            "partner": partner_settings(server, f"s3://{PARTNERS}"),
            "stranger": {**partner_settings(server, "s3://strangers"), "profile": "nobody"},
        }
        given = {"s3_endpoint": server.endpoint, "spark_jars": str(jars), "spark_conf": more, "blackboards": others}
        made = session(Settings(**given))
    yield made
    made.stop()


@pytest.fixture
def partner_url() -> str:
    """Return the URL of a fresh blackboard of a partner: a new prefix in the partners' bucket."""
    return f"s3://{PARTNERS}/lake-{os.getpid()}-{next(_PREFIXES)}"


@pytest.fixture
def s3_url(bucket: str) -> str:
    """Return the URL of a fresh blackboard: a new prefix in the bucket."""
    return f"s3://{bucket}/lake-{os.getpid()}-{next(_PREFIXES)}"


@pytest.fixture
def s3_board(s3_url: str, s3_env: S3Server) -> Blackboard:
    """Return a fresh blackboard on S3 that uses the keys of the environment."""
    return Blackboard.open(s3_url, endpoint=s3_env.endpoint)


@pytest.fixture
def local_board(tmp_path) -> Blackboard:
    """Return a blackboard in a fresh folder whose name contains a space."""
    return Blackboard.open((tmp_path / "black board").as_uri(), create=True)


@pytest.fixture(params=["local", "memory", "s3"])
def board(request: pytest.FixtureRequest) -> Blackboard:
    """Return a fresh blackboard on each kind of store; all of them must behave the same."""
    if request.param == "memory":
        return Blackboard.open("memory://")
    return request.getfixturevalue(f"{request.param}_board")


@pytest.fixture(scope="session")
def empty_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a migrated, empty ledger. Tests copy it, because migrations take a quarter of a second."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    open_ledger(f"sqlite:///{path}").engine.dispose()
    return path


@pytest.fixture(scope="session")
def postgresql(session_folder: Path) -> Iterator[PostgreSQL]:
    """Yield the PostgreSQL server of the session."""
    with shared("postgresql", session_folder) as address:
        yield PostgreSQL(**address)


@pytest.fixture(scope="session")
def broker(session_folder: Path) -> Iterator[Broker]:
    """Yield the Kafka broker of the session."""
    with shared("kafka", session_folder) as address:
        yield Broker(**address)


@pytest.fixture(scope="session")
def registry(session_folder: Path) -> Iterator[Registry]:
    """Yield the schema registry of the session."""
    with shared("registry", session_folder) as address:
        yield Registry(**address)


@pytest.fixture(scope="module")
def fork() -> Iterator[Forks]:
    """Yield a process that forks the processes to be killed. It has only what the tests of the file import."""
    with forks() as made:
        yield made


@pytest.fixture(scope="session")
def forker() -> Iterator[Forks]:
    """Yield a process that forks the processes to be killed."""
    with forks(*LATER) as made:
        yield made


@pytest.fixture
def ledger(tmp_path: Path, empty_ledger: Path) -> Iterator[Ledger]:
    """Yield a fresh SQLite ledger on disk, like the embedded one."""
    shutil.copyfile(empty_ledger, tmp_path / "ledger.db")
    opened = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    yield opened
    opened.engine.dispose()


@pytest.fixture(autouse=True)
def closed_ledgers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the ledgers that lookups opened in a test's homes: `select` accepts only the first 1,024 open files."""
    opened, look = list[Ledger](), database._for_a_look

    @contextmanager
    def noted(url: str) -> Iterator[Ledger]:
        with look(url) as ledger:
            opened.append(ledger)
            yield ledger

    monkeypatch.setattr(database, "_for_a_look", noted)
    yield
    for each in opened:
        each.engine.dispose()


@pytest.fixture
def home(tmp_path: Path, empty_ledger: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a fresh DAGSTER_HOME that holds the blackboard and the ledger of the default settings, both empty."""
    for name in [name for name in os.environ if name.startswith("FEED_ASSETS_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "home"
    folder.mkdir(0o700)
    (folder / "blackboard").mkdir()
    shutil.copyfile(empty_ledger, folder / "ledger.db")
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    settings.cache_clear()
    yield folder
    settings.cache_clear()
