"""A fleet as operators run it, for benchmarks in Python: one process, or a cluster on the servers of `dev/services env`."""
import http.client
import json
import os
import re
import subprocess
import tempfile
import time
import uuid

ROLES = ["scheduler", "scheduler", "worker", "worker"]
SERVERS = ("STORE", "SCHEDULE", "GATE", "QUEUE")


def has_servers():
    """Returns whether there are servers for a cluster."""
    return all(f"FEEDFLEET_{name}__URL" in os.environ for name in SERVERS)


class Fleet:
    """An empty fleet with its data in a new folder or namespace, until it is stopped."""

    def __init__(self, program, folder, config, cluster=False, roles=ROLES, prepare=None):
        self.program, self.data = program, tempfile.mkdtemp(dir=folder)
        settings = os.path.join(self.data, "feedfleet.toml")
        self.namespace = f"bench-{uuid.uuid4().hex[:12]}"
        with open(settings, "w") as file:
            file.write(f'namespace = "{self.namespace}"\n' + config)
        if prepare:
            prepare(self)
        roles = [[role] for role in roles] if cluster else [["run", "--data", self.data]]
        self.processes = [self.start(role, settings, number, cluster) for number, role in enumerate(roles)]
        self.address = self.address_of(0)
        for number in range(len(roles)):
            self.until_ready(number)

    def start(self, role, settings, number, cluster):
        environment = {name: value for name, value in os.environ.items() if cluster or not name.startswith("FEEDFLEET_")}
        if role == ["worker"]:
            environment = {name: value for name, value in environment.items() if "STORE" not in name and "SCHEDULE" not in name}
        command = [self.program, *role, "--config", settings, "--listen", "127.0.0.1:0"]
        with open(self.log(number), "w") as log:
            return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)

    def log(self, number):
        return os.path.join(self.data, f"log{number}")

    def address_of(self, number):
        while True:
            with open(self.log(number)) as log:
                text = log.read()
            if found := re.search(r"http://(127\.0\.0\.1:\d+)", text):
                return found[1]
            assert self.processes[number].poll() is None, text
            time.sleep(0.05)

    def until_ready(self, number):
        while True:
            connection = http.client.HTTPConnection(self.address_of(number), timeout=60)
            try:
                connection.request("GET", "/readyz")
                if connection.getresponse().status == 200:
                    return
            except (OSError, http.client.HTTPException):
                # It reports its address a moment before it listens.
                with open(self.log(number)) as log:
                    assert self.processes[number].poll() is None, log.read()
            time.sleep(0.1)

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection(self.address, timeout=60)
        connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status < 300, (answer.status, text)
        return json.loads(text)

    def command(self, *arguments):
        """Runs an operator's command; returns its output, seconds, and peak memory in MiB."""
        begun = time.monotonic()
        environment = os.environ | {"FEEDFLEET_SERVER": f"http://{self.address}"}
        process = subprocess.Popen([self.program, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        assert status == 0, (arguments, status)
        return output.decode(), time.monotonic() - begun, usage.ru_maxrss / 1024

    def most_memory(self):
        """Returns the memory of each process, in MiB."""
        return " + ".join(f"{most_memory(process):.0f}" for process in self.processes)

    def busy(self):
        """Returns the CPU seconds of its processes."""
        return sum(busy(process) for process in self.processes)

    def stop(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()


def most_memory(process):
    with open(f"/proc/{process.pid}/status") as file:
        return int(re.search(r"VmHWM:\s+(\d+)", file.read())[1]) / 1024


def busy(process):
    with open(f"/proc/{process.pid}/stat") as file:
        return sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")
