"""A small HTTP server that answers as a master of Spark, a ResourceManager or an API server does, and counts."""

import json
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl

Answer = Callable[[dict[str, str]], tuple[int, bytes]]


@dataclass
class Double:
    """A server: `answers` by path without query. `calls` counts requests, and `headers` has those of the last one.

    An answer may be a function of the query.
    """

    url: str = ""
    answers: dict[str, Any] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    headers: dict[str, str] = field(default_factory=dict)


@contextmanager
def http_double(tls: ssl.SSLContext | None = None, **answers: Any) -> Iterator[Double]:
    """Run a server until the block ends, by HTTPS if `tls` is given. An answer is JSON, bytes, or status and bytes."""
    double = Double(answers=answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            double.calls[path] += 1
            double.headers = dict(self.headers)
            answer = double.answers.get(path, (404, b""))
            status, body = _body(answer(dict(parse_qsl(query))) if callable(answer) else answer)
            self.send_response(status)
            if status == 302:
                self.send_header("Location", double.answers["elsewhere"])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    double.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield double
    finally:
        server.shutdown()
        server.server_close()


def _body(answer: Any) -> tuple[int, bytes]:
    if isinstance(answer, tuple):
        return answer
    return 200, answer if isinstance(answer, bytes) else json.dumps(answer).encode()


def worker(cores: int = 8, used: int = 0, memory: int = 15360, memory_used: int = 0, state: str = "ALIVE") -> dict:
    """Return a worker, as the master's JSON has it (`JsonProtocol.writeWorkerInfo`)."""
    return {
        "id": "worker-20260105120000-10.0.0.5-41367",
        "host": "10.0.0.5",
        "port": 41367,
        "webuiaddress": "http://10.0.0.5:8081",
        "cores": cores,
        "coresused": used,
        "coresfree": cores - used,
        "memory": memory,
        "memoryused": memory_used,
        "memoryfree": memory - memory_used,
        "resources": {},
        "resourcesused": {},
        "resourcesfree": {},
        "state": state,
        "lastheartbeat": 1767614400000,
    }


def master(*workers: dict, waiting: int = 0, status: str = "ALIVE") -> dict:
    """Return the state of a master, as its `/json/` has it (`JsonProtocol.writeMasterState`)."""
    application = {"id": "app-20260105120000-0000", "starttime": 1767614400000, "name": "feed_assets", "user": "etl"}
    return {
        "url": "spark://10.0.0.4:7077",
        "workers": [*workers],
        "aliveworkers": len(workers),
        "cores": sum(each["cores"] for each in workers),
        "coresused": sum(each["coresused"] for each in workers),
        "memory": sum(each["memory"] for each in workers),
        "memoryused": sum(each["memoryused"] for each in workers),
        "resources": [],
        "resourcesused": [],
        "activeapps": [{**application, "cores": 0, "state": "WAITING", "duration": 9}] * waiting,
        "completedapps": [],
        "activedrivers": [],
        "completeddrivers": [],
        "status": status,
    }


METRICS = {
    "clusterMetrics": {
        "appsSubmitted": 9,
        "appsCompleted": 2,
        "appsPending": 3,
        "appsRunning": 4,
        "appsFailed": 0,
        "appsKilled": 0,
        "reservedMB": 0,
        "availableMB": 17408,
        "allocatedMB": 8192,
        "reservedVirtualCores": 0,
        "availableVirtualCores": 7,
        "allocatedVirtualCores": 1,
        "containersAllocated": 1,
        "containersReserved": 0,
        "containersPending": 0,
        "totalMB": 25600,
        "totalVirtualCores": 8,
        "totalNodes": 1,
        "lostNodes": 0,
        "unhealthyNodes": 0,
        "decommissioningNodes": 0,
        "decommissionedNodes": 0,
        "rebootedNodes": 0,
        "activeNodes": 1,
        "shutdownNodes": 0,
    }
}
"""The answer of a ResourceManager, as Hadoop's page "ResourceManager REST API's" shows it (Cluster Metrics API)."""


def queue(name: str, *below: dict, share: float = 100.0, most: float = 100.0, used: int = 0, **more: Any) -> dict:
    """Return a queue of the Capacity Scheduler as that page shows it: `share` and `most` are parts of the cluster."""
    return {
        "absoluteCapacity": share,
        "absoluteMaxCapacity": most,
        "absoluteUsedCapacity": 0.0,
        "capacity": 85.0,
        "maxCapacity": 100.0,
        "numApplications": 0,
        "queueName": name,
        "resourcesUsed": {"memory": 1024 * used, "vCores": used},
        "state": "RUNNING",
        "usedCapacity": 0.0,
        "usedResources": "<memory:0, vCores:0>",
        **({"queues": {"queue": [*below]}} if below else LEAF),
        **more,
    }


LEAF = {
    "maxActiveApplications": 1,
    "maxActiveApplicationsPerUser": 1,
    "maxApplications": 267,
    "maxApplicationsPerUser": 267,
    "numActiveApplications": 0,
    "numContainers": 0,
    "numPendingApplications": 1,
    "type": "capacitySchedulerLeafQueueInfo",
    "userLimit": 100,
    "userLimitFactor": 100.0,
    "users": None,
}


def scheduler(*queues: dict) -> dict:
    """Return the answer of the Cluster Scheduler API with these queues below `root`."""
    of_root = {"capacity": 100.0, "maxCapacity": 100.0, "queueName": "root", "queues": {"queue": [*queues]}}
    return {"scheduler": {"schedulerInfo": {**of_root, "type": "capacityScheduler", "usedCapacity": 0.0}}}
