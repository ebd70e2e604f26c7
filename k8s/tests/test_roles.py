"""The containers' own command lines, run for real: flags, variables, files, probes and the Redis users of overlays/dev, against the
private servers of dev/services (FEEDFLEET_TEST_*) and a Redis with those users."""

import base64
import contextlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import unittest

from . import live, manifests, meaning, program
from .manifests import ROLES, container, named, role
from .test_manifests import OVERLAYS

DOCS = OVERLAYS["dev"]


def server(name):
    url = os.environ.get(f"FEEDFLEET_TEST_{name}")
    assert url, f"there is no FEEDFLEET_TEST_{name}; run dev/services with ..., or dev/test"
    return url


def secret(name, key):
    return named(DOCS, "Secret", name)["stringData"][key]


@contextlib.contextmanager
def redis():
    """A Redis with the users of overlays/dev; gives its port."""
    users = next(doc for doc in manifests.of_kind(DOCS, "Secret") if doc["metadata"]["name"].startswith("redis-users"))
    arguments = container(named(DOCS, "StatefulSet", "redis"))["args"]
    port = live.free_port()
    with tempfile.TemporaryDirectory() as folder:
        acl = pathlib.Path(folder) / "users.acl"
        acl.write_bytes(base64.b64decode(users["data"]["users.acl"]))
        mounted = "/etc/redis/users.acl"
        assert mounted in arguments
        arguments = [str(acl) if argument == mounted else argument for argument in arguments]
        with live.running([*arguments, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder]):
            live.until("Redis", lambda: b"NOAUTH" in talk(port, "PING"))
            yield port


def talk(port, *commands):
    """What Redis answers to these lines."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall("".join(f"{command}\r\n" for command in commands).encode())
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(4096), b""))
    except OSError:
        return b""


@contextlib.contextmanager
def running(name, redis_port, database):
    """The container of a role, its servers' addresses replaced; gives the address it listens at."""
    workload, port = role(DOCS, name), live.free_port()
    values = {
        "store-url": database,
        "queue-url": server("RABBITMQ"),
        "redis-url": re.sub(r"@redis:6379", f"@127.0.0.1:{redis_port}", secret(f"feedfleet-{name}", "redis-url")),
    }
    env = {"FEEDFLEET_NAMESPACE": "feedfleet"}
    for variable in container(workload)["env"]:
        reference = variable["valueFrom"]["secretKeyRef"]
        if reference.get("optional"):
            continue
        env[variable["name"]] = values.get(reference["key"]) or secret(reference["name"], reference["key"])
    with tempfile.TemporaryDirectory() as folder:
        arguments = list(container(workload)["args"])
        for file, text in meaning.config_files(DOCS, workload).items():
            copy = pathlib.Path(folder) / pathlib.Path(file).name
            copy.write_text(text)
            arguments = [str(copy) if argument == file else argument for argument in arguments]
        at = arguments.index("--listen") + 1
        arguments[at] = arguments[at].replace(":7878", f":{port}")
        with live.running([program.BINARY, *arguments], env=env):
            yield f"http://127.0.0.1:{port}"


class Roles(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # A database of this test's own: the namespace is the manifests'.
        cls.database = f"k8s_{os.getpid()}"
        cls.url = re.sub(r"/[^/]*$", f"/{cls.database}", server("POSTGRES"))
        psql = shutil.which("psql", path=os.pathsep.join([os.environ["PATH"], *map(str, pathlib.Path("/usr/lib/postgresql").glob("*/bin"))]))
        def sql(statement):
            subprocess.run([psql, "-q", server("POSTGRES"), "-c", statement], check=True, capture_output=True, text=True)
        sql(f"CREATE DATABASE {cls.database}")
        cls.addClassCleanup(sql, f"DROP DATABASE {cls.database} WITH (FORCE)")
        port = redis()
        cls.redis = port.__enter__()
        cls.addClassCleanup(port.__exit__, None, None, None)

    def test_roles_start_and_answer_their_probes_and_do_their_work(self):
        with running("scheduler", self.redis, self.url) as scheduler, running("worker", self.redis, self.url) as worker:
            for name, address in zip(ROLES, (scheduler, worker)):
                for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                    path = container(role(DOCS, name))[probe]["httpGet"]["path"]
                    live.until(f"{name}: {path}", lambda: live.answer(f"{address}{path}")[0] == 200)
                self.assertIn("feedfleet_build_info", live.answer(f"{address}/metrics")[1])
            token = re.search(r'token = "([^"]+)"', secret("feedfleet-scheduler", "api-tokens")).group(1)
            added = program.run("feed", "add", "http://127.0.0.1:9/feed.xml", "--server", scheduler,
                                env={"FEEDFLEET_TOKEN": token})
            self.assertEqual(added.returncode, 0, added.stderr)
            self.assertEqual(live.answer(f"{scheduler}/api/v1/stats")[0], 401)
            # Port 9 is refused by the worker's guard: a whole round through schedule, gate, queue and store, and no request.
            live.until("a poll", lambda: 'feedfleet_polls_total{outcome="failed"} 1' in live.answer(f"{scheduler}/metrics")[1])
            health = program.run("health", "--ready", "--server", worker)
            self.assertEqual((health.returncode, health.stdout), (0, "ready\n"), health.stderr)

    def test_the_workers_redis_user_reaches_the_gate_only(self):
        password = re.search(r"worker:([^@]+)@", secret("feedfleet-worker", "redis-url")).group(1)
        said = talk(self.redis, f"AUTH worker {password}", "GET {feedfleet}:gate:x", "GET {feedfleet:0/1}:schedule:steady",
                    "KEYS *", "FLUSHALL", "CONFIG GET *").split(b"\r\n")
        self.assertEqual(said[:2], [b"+OK", b"$-1"])
        self.assertTrue(all(line.startswith(b"-NOPERM") for line in said[2:6]), said)

    def test_the_readme_gives_the_same_users(self):
        readme = (manifests.K8S / "README.md").read_text()
        for line in (manifests.K8S / "overlays" / "dev" / "users.acl").read_text().splitlines()[1:]:
            name, rights = re.match(r"user (\w+) on >\S+ (.*)", line).groups()
            self.assertIn(f"ACL SETUSER {name} on >{name.upper()}-PASSWORD {rights}\n", readme)
