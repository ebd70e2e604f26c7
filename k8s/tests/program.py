"""The program under test: its description of itself, and its real answers."""

import functools
import json
import os
import pathlib
import re
import subprocess
import tempfile
import threading
import tomllib
from typing import Any

BINARY = os.environ.get("FEEDFLEET_BINARY", "target/debug/feedfleet")
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs it to its end, without this machine's environment."""
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, env=env or {}, cwd="/", check=False)


@functools.cache
def with_file(text: str, *arguments: str, env: tuple[tuple[str, str], ...] = ()) -> subprocess.CompletedProcess[str]:
    """Does the same with this configuration file, and these variables."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        return run(*arguments, "--config", file.name, env=dict(env))


def configuration_of(text: str) -> dict[str, Any]:
    """Returns every key with its value, given this configuration file."""
    ran = with_file(text, "config", "print", "--json")
    assert ran.returncode == 0, ran.stderr
    return {line["key"]: line["value"] for line in map(json.loads, ran.stdout.splitlines())}


@functools.cache
def grace_of_a_worker() -> str:
    """How long a worker with the default configuration waits for its fetches after SIGTERM: it logs that when it stops."""
    # It handles signals a moment after it says where it listens, on a busy machine later than on another.
    grace = next(filter(None, map(grace_logged_after, (1, 10, 60))), None)
    assert grace, "a worker that was stopped did not log its grace"
    return grace


def grace_logged_after(seconds: float) -> str | None:
    """The grace that a worker logs when it is stopped this long after its start; None if it did not handle signals yet."""
    nowhere = {"FEEDFLEET_GATE__URL": "redis://127.0.0.1:1/", "FEEDFLEET_QUEUE__URL": "amqp://127.0.0.1:1/%2f"}
    with subprocess.Popen([BINARY, "worker", "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True, cwd="/",
                          env=nowhere | {"FEEDFLEET_LOG__FORMAT": "json"}) as worker:
        assert worker.stderr
        assert "http://127.0.0.1" in worker.stderr.readline()
        threading.Timer(seconds, worker.terminate).start()
        logged = [json.loads(line).get("grace") for line in worker.stderr]
    return next(filter(None, logged), None)


@functools.cache
def flags(command: str) -> set[str]:
    """Returns the flags of a command."""
    return set(re.findall(r"--[a-z-]+", run(command, "--help").stdout))


def key_of(variable: str) -> str:
    """Returns the configuration key that a variable sets."""
    return variable.removeprefix("FEEDFLEET_").lower().replace("__", ".")


def workspace_version() -> str:
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
