"""`scripts/audit.sh` with a stand-in for OSV's service: known vulnerabilities fail `make check`."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

from feed_assets_tests.support.each_case import each_case

AUDIT = Path(__file__).parents[1] / "scripts" / "audit.sh"
KNOWN = {"id": "OSV-1", "modified": "2026-01-01T00:00:00Z"}


@contextmanager
def osv(vulnerable: str | None) -> Iterator[str]:
    """Serve one vulnerability of one package; yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
            self.answer({"results": [{"vulns": [KNOWN] * (q["package"]["name"] == vulnerable)} for q in asked]})

        def do_GET(self):
            self.answer({**KNOWN, "summary": "what is wrong with it", "affected": []})

        def answer(self, value):
            body = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_): ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def audit(url):
    return subprocess.run([str(AUDIT), url], capture_output=True, text=True, check=False)


@each_case(("vulnerable", "code"), [("requests", 1), (None, 0), ("not-ours", 0)])
def test_a_known_vulnerability_fails(vulnerable, code):
    with osv(vulnerable) as url:
        done = audit(url)
    assert done.returncode == code
    assert ("what is wrong with it" in done.stderr) is bool(code)


def test_an_unreachable_audit_service_is_reported_without_failure():
    done = audit("http://127.0.0.1:9/")
    assert done.returncode == 0
    assert "audit: NOT DONE" in done.stderr


def test_other_failures_of_the_audit_fail_it(tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "audit.sh").write_bytes(AUDIT.read_bytes())
    (tmp_path / ".cache").symlink_to(AUDIT.parents[1] / ".cache")
    done = subprocess.run(["bash", str(tmp_path / "scripts" / "audit.sh")], capture_output=True, check=False)
    assert done.returncode == 2
