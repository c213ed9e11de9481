"""Rows of a slice by PostgreSQL's own driver for JDBC: the same columns and values as by Spark's Python workers."""

import json
import subprocess
import sys
from pathlib import Path

import sqlalchemy as sa

from feed_assets_tests.support.port_relay import relay
from feed_assets_tests.support.servers import fetched, free_ports


def test_the_jdbc_driver_reads_the_same_as_python(postgresql):
    at = sa.make_url(postgresql.database())
    with sa.create_engine(at, poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql(
            'CREATE TABLE orders ("at%%x" timestamptz, id uuid, doc jsonb, loose numeric, price numeric(10, 2), '
            "n integer, small smallint, raw bytea, list int[], weight real, day date, plain timestamp, paid boolean)"
        )
        connection.exec_driver_sql(
            "INSERT INTO orders SELECT timestamptz '2024-01-01 12:00:00.5Z' + number * interval '1 minute', "
            "uuid '00000000-0000-0000-0000-000000000001', jsonb '{\"a\": 1}', 1.23456789012345678901, number / 4.0, "
            "number, 7, bytea 'abc', '{1,2}'::int[], 1.5, date '2024-01-01', "
            "timestamp '2024-01-01 12:00:00.123456', number > 20 FROM generate_series(0, 39) AS number"
        )
        connection.exec_driver_sql("INSERT INTO orders (\"at%%x\") VALUES ('2024-01-01 14:06:00+02'), (NULL)")
    (port,) = free_ports(1)
    url = at.set(host="127.0.0.1", port=port, username="postgres", password="any", query={})
    (socket,) = (path for path in Path(str(at.query["host"])).glob(".s.PGSQL.*") if path.suffix != ".lock")
    with relay(port, socket):
        command = [sys.executable, "-m", "feed_assets_tests.sources.read_both_ways"]
        asked = [url.render_as_string(hide_password=False), str(fetched("jdbc"))]
        done = subprocess.run([*command, *asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["jdbc"].pop("scans_jdbc"), found["python"].pop("scans_jdbc")) == (True, False)
    assert found["jdbc"] == found["python"]
    assert (found["jdbc"]["tasks"], len(found["jdbc"]["rows"])) == (4, 26)
