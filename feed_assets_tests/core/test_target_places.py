"""Two declarations of one cluster are refused, however its address is written."""

import json

import pytest

from feed_assets.core.errors import InvalidSetting
from feed_assets.settings import Settings
from feed_assets_tests.support.each_case import each_case

MANAGER = "spark.hadoop.yarn.resourcemanager.address"


def standalone(master="spark://h:7077", url="http://h:8080"):
    return {"kind": "standalone", "master": master, "url": url}


def connect(remote):
    return {"kind": "connect", "remote": remote, "cores": 1, "memory": "1g"}


def yarn(url="http://rm:8088", queue="default", **conf):
    return {"kind": "yarn", "url": url, "queue": queue, "conf": {MANAGER: conf["manager"]} if conf else {}}


def kubernetes(url, namespace="etl"):
    return {"kind": "kubernetes", "url": url, "namespace": namespace}


@each_case(
    ("one", "other", "is_refused"),
    [
        (standalone(), standalone(url="http://other:8080"), True),
        (standalone(), standalone(master="spark://other:7077"), True),
        (standalone(), standalone("spark://H:7077", "http://other:8080"), True),
        (standalone("spark://localhost:7077"), standalone("spark://127.0.0.1:7077", "http://other:8080"), True),
        (standalone("spark://localhost:7077"), standalone("spark://[::1]:7077", "http://other:8080"), True),
        (standalone(), standalone("spark://other:7077", "http://other:8080"), False),
        (standalone("spark://localhost2:7077"), standalone("spark://127.0.0.12:7077", "http://other:8080"), False),
        (standalone(url="http://p/Etl"), standalone("spark://other:7077", "http://p/etl"), False),
        (connect("sc://h"), connect("sc://H:15002/;token=t"), True),
        (connect("sc://h"), connect("sc://h:15003"), False),
        (kubernetes("https://k"), kubernetes("https://k:443/"), True),
        (kubernetes("https://k"), kubernetes("https://k", "other"), False),
        (yarn(), yarn("http://RM:8088/"), True),
        (yarn(queue="etl"), yarn(queue="root.etl"), True),
        (yarn(queue="a"), yarn("http://RM:8088/", queue="b"), False),
        (yarn(manager="a:8032"), yarn("http://rn:8088", manager="b:8032"), False),
    ],
)
def test_one_cluster_is_declared_once(one, other, is_refused):
    declared = json.dumps({"a": one, "b": other})
    if is_refused:
        with pytest.raises(InvalidSetting, match="TARGETS: a and b are one cluster, whose room would be given twice"):
            Settings(targets=declared)
    else:
        assert len(Settings(targets=declared).targets.get_secret_value()) == len("ab")
