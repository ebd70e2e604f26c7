"""The containers' own command lines, run for real: flags, variables, files, probes and the Redis users of overlays/dev, against the
private servers of dev/services (FEEDFLEET_TEST_*) and a Redis with those users."""

import base64
import contextlib
import functools
import http.server
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import unittest

from . import live, manifests, meaning, program
from .manifests import ROLES, container, named, role
from .test_manifests import OVERLAYS

DOCS = OVERLAYS["dev"]
# Restores a backup, as the servers' administrators do: name and password.
ADMINISTRATOR = "administrator"


def server(name):
    url = os.environ.get(f"FEEDFLEET_TEST_{name}")
    assert url, f"there is no FEEDFLEET_TEST_{name}; run dev/services with ..., or dev/test"
    return url


def secret(name, key):
    return named(DOCS, "Secret", name)["stringData"][key]


def tool(name):
    """Returns the path of one of PostgreSQL's programs."""
    return shutil.which(name, path=os.pathsep.join([*map(str, pathlib.Path("/usr/lib/postgresql").glob("*/bin")), os.environ["PATH"]]))


def operations(word):
    """Returns the block of docs/operations.md whose commands contain this word."""
    blocks = re.findall(r"^```\w*\n(.*?)^```$", (program.ROOT / "docs/operations.md").read_text(), re.MULTILINE | re.DOTALL)
    found = [block for block in blocks if word in block]
    assert len(found) == 1, f"{len(found)} blocks of docs/operations.md have {word}"
    return found[0].splitlines()


@contextlib.contextmanager
def origin():
    """Serves the example feeds on a port that workers may dial; returns its address."""
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=program.ROOT / "docs/example")
    for port in range(8000, 9000):
        try:
            # Two roles must not share a port.
            serving = type("Alone", (http.server.ThreadingHTTPServer,), {"allow_reuse_address": False})(("127.0.0.1", port), handler)
            break
        except OSError:
            continue
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        serving.shutdown()
        serving.server_close()


@contextlib.contextmanager
def redis():
    """Runs a Redis with the users of overlays/dev and an administrator; returns its port."""
    users = next(doc for doc in manifests.of_kind(DOCS, "Secret") if doc["metadata"]["name"].startswith("redis-users"))
    arguments = container(named(DOCS, "StatefulSet", "redis"))["args"]
    port = live.free_port()
    with tempfile.TemporaryDirectory() as folder:
        acl = pathlib.Path(folder) / "users.acl"
        acl.write_text(base64.b64decode(users["data"]["users.acl"]).decode() + f"user {ADMINISTRATOR} on >{ADMINISTRATOR} ~* +@all\n")
        mounted = "/etc/redis/users.acl"
        assert mounted in arguments
        arguments = [str(acl) if argument == mounted else argument for argument in arguments]
        with live.running([*arguments, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder]):
            live.until("Redis", lambda: b"NOAUTH" in talk(port, "PING"))
            yield port


def talk(port, *commands):
    """Returns Redis' replies to these lines."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=live.PATIENCE_SECONDS) as connection:
            connection.sendall("".join(f"{command}\r\n" for command in commands).encode())
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(4096), b""))
    except OSError:
        return b""


@contextlib.contextmanager
def running(name, redis_port, database, more=None):
    """Runs the container of a role, with replaced server addresses and further variables; yields its own address."""
    workload, port = role(DOCS, name), live.free_port()
    values = {
        "store-url": database,
        "queue-url": server("RABBITMQ"),
        "redis-url": re.sub(r"@redis:6379", f"@127.0.0.1:{redis_port}", secret(f"feedfleet-{name}", "redis-url")),
    }
    env = {"FEEDFLEET_NAMESPACE": "feedfleet", **(more or {})}
    for variable in container(workload)["env"]:
        if "value" in variable:
            env[variable["name"]] = variable["value"]
            continue
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
        # A separate database, because the namespace is the manifests'.
        cls.database = f"k8s_{os.getpid()}"
        cls.url = re.sub(r"/[^/]*$", f"/{cls.database}", server("POSTGRES"))
        def sql(statement):
            subprocess.run([tool("psql"), "-q", server("POSTGRES"), "-c", statement], check=True, capture_output=True, text=True)
        # template0, because it can have no other connections.
        sql(f"CREATE DATABASE {cls.database} TEMPLATE template0")
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
            # The worker's guard denies port 9, which is a lasting reason.
            self.assertEqual(added.returncode, 1, added.stderr)
            self.assertIn("port 9 is not allowed", added.stderr)
            self.assertEqual(live.answer(f"{scheduler}/api/v1/stats")[0], 401)
            # A complete round through schedule, gate, queue and store, without a request.
            live.until("a poll", lambda: re.search(r'feedfleet_polls_total{outcome="failed"} [1-9]', live.answer(f"{scheduler}/metrics")[1]))
            health = program.run("health", "--ready", "--server", worker)
            self.assertEqual((health.returncode, health.stdout), (0, "ready\n"), health.stderr)

    def test_a_fleet_is_backed_up_and_restored_by_the_documented_commands(self):
        backing_up, restoring = operations("pg_dump"), operations("pg_restore")
        # Skips the kubectl commands: this test stops and starts the roles itself.
        restoring = [line for line in restoring if not line.startswith("kubectl ")]
        self.assertEqual([line.split()[0] for line in restoring],
                         ["psql", "pg_restore", "redis-cli", "rabbitmqctl", "rabbitmqctl", "rabbitmqctl", "FEEDFLEET_STORE__URL=DATABASE"])
        token = re.search(r'token = "([^"]+)"', secret("feedfleet-scheduler", "api-tokens")).group(1)

        @contextlib.contextmanager
        def fleet():
            """Yields a function that runs a command and returns its JSON lines, and one that requests a path of the API."""
            with running("scheduler", self.redis, self.url) as scheduler, \
                    running("worker", self.redis, self.url, {"FEEDFLEET_FETCH__ALLOW_NETWORKS": "127.0.0.0/8"}):
                live.until("readiness", lambda: live.answer(f"{scheduler}/readyz")[0] == 200)

                def ask(*words):
                    ran = program.run(*words, "--json", "--server", scheduler, env={"FEEDFLEET_TOKEN": token})
                    self.assertEqual(ran.returncode, 0, ran.stderr)
                    return [json.loads(line) for line in ran.stdout.splitlines()]
                yield ask, lambda path: live.answer(f"{scheduler}/api/v1/{path}", token)

        with origin() as feeds, tempfile.TemporaryDirectory() as folder:
            with fleet() as (ask, listed):
                ask("feed", "add", f"{feeds}/news.xml")
                before = live.until("entries", lambda: ask("entries"))
                epoch = json.loads(listed("entries")[1])["epoch"]
                self.shell(folder, backing_up)
                ask("feed", "add", f"{feeds}/log.atom")
                live.until("more entries", lambda: len(ask("entries")) > len(before))
            # A column that the next version might add, and that an older backup lacks.
            self.shell(folder, ["psql DATABASE -qc 'CREATE TABLE feedfleet.newer (one int)'"])
            self.shell(folder, restoring)
            left = subprocess.run([tool("psql"), "-Atc", "SELECT to_regclass('feedfleet.newer') IS NULL", self.url], capture_output=True, check=True)
            self.assertEqual(left.stdout, b"t\n")
            with fleet() as (ask, listed):
                self.assertEqual([feed["url"] for feed in ask("feed", "list")], [f"{feeds}/news.xml"])
                self.assertEqual(ask("entries"), before)
                self.assertNotEqual(json.loads(listed("entries")[1])["epoch"], epoch)
                self.assertEqual(listed(f"events?after=0&epoch={epoch}")[0], 410, "a consumer must be able to notice that it has to start from scratch")
                ask("feed", "add", f"{feeds}/notes.json")
                live.until("entries of after the restore", lambda: len(ask("entries")) > len(before))

    def shell(self, folder, lines):
        """Runs documented commands in a folder, against this test's servers."""
        services = pathlib.Path(os.environ.get("FEEDFLEET_SERVICES", f"/tmp/feedfleet-services-{os.getuid()}"))
        broker = re.search(r":(\d+)/", server("RABBITMQ")).group(1)
        known = {
            "redis-cli": f"exec {shutil.which('redis-cli')} --user {ADMINISTRATOR} --pass {ADMINISTRATOR} --no-auth-warning -p {self.redis} \"$@\"",
            # RabbitMQ's own script, which does not switch to the system's user; it finds the node by dev/services' name.
            "rabbitmqctl": f"HOME={services}/rabbitmq ERL_EPMD_PORT=$(cat {services}/epmd.port) ERL_EPMD_ADDRESS=127.0.0.1 "
                           f"RABBITMQ_CONF_ENV_FILE=/dev/null exec /usr/lib/rabbitmq/bin/rabbitmqctl -n t{broker}@localhost \"$@\"",
            "feedfleet": f"exec {program.BINARY} \"$@\"",
        }
        for name, line in known.items():
            script = pathlib.Path(folder) / name
            script.write_text(f"#!/bin/sh\n{line}\n")
            script.chmod(0o755)
        path = os.pathsep.join([folder, os.path.dirname(tool("psql")), os.environ["PATH"]])
        env = {name: value for name, value in os.environ.items() if not name.startswith("FEEDFLEET_")} | {"PATH": path}
        script = "set -euo pipefail\n" + "\n".join(lines).replace("DATABASE", self.url).replace("VHOST", "/")
        ran = subprocess.run(["bash", "-c", script], cwd=folder, env=env, capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)

    def test_the_workers_redis_user_reaches_the_gate_only(self):
        password = re.search(r"worker:([^@]+)@", secret("feedfleet-worker", "redis-url")).group(1)
        said = talk(self.redis, f"AUTH worker {password}", "GET {feedfleet}:gate:x", "GET {feedfleet:0/1}:schedule:steady",
                    "KEYS *", "FLUSHALL", "CONFIG GET *").split(b"\r\n")
        self.assertEqual(said[:2], [b"+OK", b"$-1"])
        self.assertTrue(all(line.startswith(b"-NOPERM") for line in said[2:6]), said)

    def test_rabbitmq_takes_the_users_of_the_overlay(self):
        """Uses a separate virtual host, so that nothing else on this server changes."""
        users = next(doc for doc in manifests.of_kind(DOCS, "Secret") if doc["metadata"]["name"].startswith("rabbitmq-users"))
        host = f"k8s-{os.getpid()}"
        definitions = json.loads(base64.b64decode(users["data"]["definitions.json"]))
        for part in (*definitions["users"], *definitions["vhosts"]):
            part["name"] = host if part["name"] == "/" else f"{host}-{part['name']}"
        for permission in definitions["permissions"]:
            permission.update(user=f"{host}-{permission['user']}", vhost=host)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "definitions.json"
            file.write_text(json.dumps(definitions))
            try:
                self.shell(folder, [f"rabbitmqctl import_definitions {file}", f"rabbitmqctl authenticate_user {host}-worker worker-dev-only",
                                    "rabbitmqctl --formatter json list_users > users", f"rabbitmqctl --formatter json list_permissions -p {host} > rights"])
                tags = {user["user"]: user["tags"] for user in json.loads((pathlib.Path(folder) / "users").read_text())}
                self.assertEqual((tags[f"{host}-scheduler"], tags[f"{host}-worker"]), ([], []))
                rights = {line["user"].removeprefix(f"{host}-"): (line["configure"], line["write"], line["read"])
                          for line in json.loads((pathlib.Path(folder) / "rights").read_text())}
                self.assertEqual(rights["worker"], ("^$", r"^feedfleet\.reports$", r"^feedfleet\.jobs(\.logins)?$"))
            finally:
                self.shell(folder, [f"rabbitmqctl delete_user {host}-{name}" for name in ("scheduler", "worker")] + [f"rabbitmqctl delete_vhost {host}"])

    def test_redis_users_have_the_rights_that_setup_prints(self):
        for line in (manifests.K8S / "overlays" / "dev" / "users.acl").read_text().splitlines()[1:]:
            name, rights = re.match(r"user (\w+) on >\S+ resetchannels -@all (.*)", line).groups()
            printed = program.run("setup", "redis", "--role", name).stdout
            self.assertEqual(re.search(r" reset on #[0-9a-f]{64} (.*)", printed)[1], rights)

    def test_the_readme_gives_the_same_users(self):
        readme = (manifests.K8S / "README.md").read_text()
        for line in (manifests.K8S / "overlays" / "dev" / "users.acl").read_text().splitlines()[1:]:
            name, rights = re.match(r"user (\w+) on >\S+ (.*)", line).groups()
            self.assertIn(f"ACL SETUSER {name} on >{name.upper()}-PASSWORD {rights}\n", readme)
