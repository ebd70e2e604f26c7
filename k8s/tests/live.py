"""The program and a real Prometheus, running on loopback for a test."""

import atexit
import contextlib
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

from . import monitoring, program

# Far more than a loaded machine needs.
PATIENCE_SECONDS = 120


def free_port() -> int:
    """Returns a port that no other test uses while this process runs, below the system's ephemeral ports.
    dev/services reserves its ports in the same way."""
    while True:
        port = random.randrange(20_000, 30_000)
        mark = pathlib.Path(f"/tmp/.feedfleet-port-{port}")
        try:
            mark.mkdir()
        except FileExistsError:
            continue
        atexit.register(mark.rmdir)
        with contextlib.suppress(OSError), socket.socket() as held:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(("0.0.0.0", port))
            return port


def answer(url: str, token: str = "") -> tuple[int, str]:
    """Returns status and body; 0 if there is no response."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def until(what: str, holds: Any) -> Any:
    """Waits for the first true value of `holds()` and returns it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        value = holds()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.1)


@contextlib.contextmanager
def running(arguments: list[str], env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a process that is stopped at the end, with its output in a separate file."""
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(arguments, env=env if env is not None else dict(os.environ), stdout=log, stderr=log, cwd="/tmp")
        try:
            yield child
        except BaseException as failure:
            log.seek(0)
            failure.add_note(f"{arguments[:2]} printed: {log.read().decode(errors='replace')[-3000:]}")
            raise
        finally:
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(timeout=PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


@contextlib.contextmanager
def demo() -> Iterator[str]:
    """Runs the fleet of `feedfleet demo`; returns its address."""
    port = free_port()
    with running([program.BINARY, "demo", "--plain", "--for", "10m", "--listen", f"127.0.0.1:{port}"], env={}):
        address = f"http://127.0.0.1:{port}"
        until("the demo's fleet", lambda: answer(f"{address}/readyz")[0] == 200)
        yield address


@contextlib.contextmanager
def worker() -> Iterator[str]:
    """Runs a worker without servers; returns its address."""
    port = free_port()
    nowhere = {"FEEDFLEET_GATE__URL": "redis://127.0.0.1:1/", "FEEDFLEET_QUEUE__URL": "amqp://127.0.0.1:1/%2f"}
    with running([program.BINARY, "worker", "--listen", f"127.0.0.1:{port}"], env=nowhere):
        address = f"http://127.0.0.1:{port}"
        until("the worker", lambda: answer(f"{address}/healthz")[0] == 200)
        yield address


class Prometheus:
    def __init__(self, address: str) -> None:
        self.address = address

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Returns the current series of an expression."""
        query = urllib.parse.urlencode({"query": expression})
        status, body = answer(f"{self.address}/api/v1/query?{query}")
        assert status == 200, f"{expression}: {body}"
        return json.loads(body)["data"]["result"]


@contextlib.contextmanager
def prometheus(*targets: str) -> Iterator[Prometheus]:
    """Runs a Prometheus that has scraped `targets` for ten seconds, once a second, labelled as in a cluster."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config, rules = pathlib.Path(folder) / "prometheus.yml", pathlib.Path(folder) / "rules.yml"
        rules.write_text(json.dumps(monitoring.ALERTS["spec"]))
        config.write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [{
                "job_name": "feedfleet/feedfleet",
                "static_configs": [{"targets": [target.removeprefix("http://")],
                                    "labels": {"namespace": "feedfleet", "pod": f"pod-{number}", "container": "feedfleet"}}
                                   for number, target in enumerate(targets)],
            }],
        }))
        arguments = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
                     f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
        with running(arguments):
            server = Prometheus(f"http://127.0.0.1:{port}")
            until("Prometheus", lambda: answer(f"{server.address}/-/ready")[0] == 200)
            until("ten looks", lambda: any(float(series["value"][1]) >= 10
                                           for series in server.query("count_over_time(up[1m])")))
            yield server
