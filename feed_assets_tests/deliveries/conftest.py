"""A receiver and a warehouse for subscriptions."""

import json

import psycopg
import pytest

from feed_assets.settings import settings
from feed_assets_tests.support import sum_projects
from feed_assets_tests.support.alert_channels import SECRET, web_server
from feed_assets_tests.support.yaml_projects import new_project


@pytest.fixture(autouse=True)
def world(home):
    yield home
    sum_projects.opened.close()


@pytest.fixture
def project(tmp_path, monkeypatch, request):
    """Return a function that writes files below `defs/` of a fresh project and loads it."""
    name = f"acme_{abs(hash(request.node.nodeid))}"
    with new_project(tmp_path / "project", name, monkeypatch) as load:
        yield load


@pytest.fixture
def hook(monkeypatch):
    with web_server() as receiver:
        monkeypatch.setenv("CACHE_URL", receiver.url)
        monkeypatch.setenv("CACHE_SECRET", SECRET)
        yield receiver


@pytest.fixture
def reports(postgresql, monkeypatch):
    """Return a connection to a database with the schema `reports`, which is the warehouse `main`."""
    url = postgresql.database()
    monkeypatch.setenv("FEED_ASSETS_WAREHOUSES", json.dumps({"main": {"url": url}}))
    settings.cache_clear()
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("CREATE SCHEMA reports; CREATE TABLE reports.log (n serial, day text, start timestamptz)")
        yield connection
