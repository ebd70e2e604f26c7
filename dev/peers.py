#!/usr/bin/env python3
"""Compares feedfleet with other programs that poll feeds, and prints Markdown tables.

    dev/peers.py FEEDFLEET [PROGRAM...]      run by `dev/bench peers`, which installs the programs

Serves the same feeds to each program from one origin, cold and warm, and then responses that misbehave. Everything runs in a network
namespace that has loopback only, one program at a time, each with its defaults. PEERS_FEEDS and PEERS_HOSTS set the size.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FEEDS = int(os.environ.get("PEERS_FEEDS", "100"))
HOSTS = int(os.environ.get("PEERS_HOSTS", "20"))
# For benchmarks (RFC 2544), and only the namespace knows them. Loopback and other ports are refused by tt-rss.
NETWORK = "198.18.0.0/16"
PATIENCE = 40.0
TOOLS = Path(__file__).resolve().parent.parent / "target/peers"
DATE = "Fri, 20 Nov 2026 10:00:00 GMT"


def document(name: str) -> bytes:
    items = "".join(
        f"<item><title>{name} number {n}</title><link>http://example.org/{name}/{n}</link><guid>{name}-{n}</guid>"
        f"<pubDate>{DATE}</pubDate><description>{'Words of an entry. ' * 25}</description></item>"
        for n in range(20)
    )
    return f'<rss version="2.0"><channel><title>{name}</title><link>http://example.org/</link><description>d</description>{items}</channel></rss>'.encode()


def bomb() -> bytes:
    """A gzip stream of 512 MB, made without having them in memory."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [packer.compress(b"<rss><channel><title>")] + [packer.compress(b"x" * 1_000_000) for _ in range(512)]
    return b"".join([*parts, packer.flush()])


BOMB = bomb()


@dataclass
class Request:
    at: float
    host: str
    path: str
    status: int
    conditional: bool
    sent: int = 0


class Origin:
    """Serves feeds at every loopback address, and notes each request."""

    def __init__(self) -> None:
        self.log: list[Request] = []
        ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self.serve(ready)), daemon=True).start()
        ready.wait()

    async def serve(self, ready: threading.Event) -> None:
        server = await asyncio.start_server(self.connection, "0.0.0.0", 80)
        ready.set()
        async with server:
            await server.serve_forever()

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self.answer(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        path = head.split(" ", 2)[1]
        fields = head.lower()
        host = writer.get_extra_info("sockname")[0]
        conditional = "if-none-match" in fields or "if-modified-since" in fields
        request = Request(time.monotonic(), host, path, 0, conditional)
        self.log.append(request)
        if path == "/hang":
            await asyncio.sleep(10 * PATIENCE)
            return False
        if path == "/endless":
            request.status = 200
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/rss+xml\r\nConnection: close\r\n\r\n<rss><channel><title>")
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
                request.sent += 65536
                # About 10 MB a second: reading costs no program its time.
                await asyncio.sleep(0.006)
        status, more, body = self.response(path, fields)
        request.status, request.sent = status, len(body)
        lines = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{more}\r\n"
        writer.write(lines.encode() + (b"" if head.startswith("HEAD ") else body))
        await writer.drain()
        return "connection: close" not in fields

    def response(self, path: str, fields: str) -> tuple[int, str, bytes]:
        plain = "Content-Type: application/rss+xml\r\n"
        if path == "/429":
            return 429, "Retry-After: 3600\r\n", b""
        if path == "/410":
            return 410, "", b""
        if path == "/301":
            return 301, f"Location: http://198.18.2.1/moved\r\n", b""
        if path == "/bomb":
            return 200, plain + "Content-Encoding: gzip\r\n", BOMB
        etag = f'"{path[1:]}-1"'
        if etag in fields or ("if-none-match" not in fields and DATE.lower() in fields):
            return 304, f"ETag: {etag}\r\n", b""
        return 200, f"{plain}ETag: {etag}\r\nLast-Modified: {DATE}\r\n", document(path[1:])


@dataclass
class Run:
    """One round of a program."""

    wall: float
    cpu: float
    memory: float
    code: int | None
    requests: list[Request]


class Program:
    """A program under comparison; `prepare` writes its list of feeds, `command` polls them once."""

    name = ""

    def version(self) -> str:
        return ""

    def prepare(self, home: Path, urls: list[str]) -> None:
        raise NotImplementedError

    def command(self, home: Path) -> list[str]:
        raise NotImplementedError

    def clean_up(self) -> None:
        """Stops what `prepare` started."""

    # Of a program that keeps running: it is stopped when every feed was requested.
    endless = False

    def run(self, origin: Origin, home: Path, wanted: int, patience: float = PATIENCE) -> Run:
        command = self.command(home)
        origin.log.clear()
        environment = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "EMAIL": "a@example.org"}
        began = time.monotonic()
        child = subprocess.Popen(
            command, cwd=home, env=environment, start_new_session=True, stdin=subprocess.DEVNULL,
            stdout=(home / "out").open("ab"), stderr=subprocess.STDOUT,
        )  # fmt: skip
        code, used, memory = None, None, 0
        while used is None:
            memory = max(memory, peak_of(child.pid))
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            elapsed = time.monotonic() - began
            if pid:
                code, used = os.waitstatus_to_exitcode(status), usage
            elif elapsed > patience or (self.endless and len(origin.log) >= wanted and quiet_for(origin, 0.5)):
                os.killpg(child.pid, signal.SIGKILL)
                _, _, used = os.wait4(child.pid, 0)
            else:
                time.sleep(0.005)
        wall = time.monotonic() - began
        return Run(wall, used.ru_utime + used.ru_stime, memory / 1000, code, list(origin.log))


def peak_of(session: int) -> int:
    """The most memory that a process of this session has had, in kB. What wait4 reports includes the parent's before the exec."""
    peak = 0
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            if os.getsid(int(process.name)) == session:
                lines = (process / "status").read_text().splitlines()
                peak = max([peak, *(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))])
        except (OSError, ValueError):
            continue
    return peak


def quiet_for(origin: Origin, seconds: float) -> bool:
    return bool(origin.log) and time.monotonic() - origin.log[-1].at > seconds


def printed(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip()


def package(name: str) -> str:
    return printed("dpkg-query", "-W", "-f", "${Version}", name)


class Feedfleet(Program):
    name = "feedfleet"

    def __init__(self, binary: str) -> None:
        self.binary = str(Path(binary).resolve())

    def version(self) -> str:
        return printed(self.binary, "--version").split()[-1]

    def prepare(self, home: Path, urls: list[str]) -> None:
        (home / "urls").write_text("\n".join(urls))
        # What every program may do here, and intervals that make each round find all feeds due.
        intervals = "".join(
            f'[policy.category.{c}]\nmin = "1s"\nmax = "1s"\ninterval = "1s"\n' for c in "cd"
        )
        (home / "config.toml").write_text(
            f'[fetch]\nallow_networks = ["{NETWORK}"]\nuser_agent_url = "http://example.org/"\n'
            f'[api]\nlisten = "127.0.0.1:0"\n[policy]\nhot_minutes = false\nmin_interval = "1s"\ndefault_interval = "1s"\n{intervals}'
        )

    def command(self, home: Path) -> list[str]:
        time.sleep(3)
        return [self.binary, "run", "--once", "--config", "config.toml", "--data", "data", "urls"]


class Newsboat(Program):
    name = "newsboat"

    def version(self) -> str:
        return package("newsboat")

    def prepare(self, home: Path, urls: list[str]) -> None:
        (home / "urls").write_text("\n".join(urls) + "\n")
        (home / "config").write_text("")

    def command(self, home: Path) -> list[str]:
        return ["newsboat", "-u", "urls", "-c", "cache.db", "-C", "config", "-x", "reload"]


class Rss2email(Program):
    name = "rss2email"

    def version(self) -> str:
        return package("rss2email")

    def prepare(self, home: Path, urls: list[str]) -> None:
        feeds = "".join(f"[feed.f{n}]\nurl = {url}\n" for n, url in enumerate(urls))
        (home / "rss2email.cfg").write_text(f"[DEFAULT]\nto = a@example.org\n{feeds}")

    def command(self, home: Path) -> list[str]:
        return ["r2e", "-c", "rss2email.cfg", "-d", "rss2email.json", "run", "--no-send"]


class Sfeed(Program):
    name = "sfeed"

    def version(self) -> str:
        return package("sfeed")

    def prepare(self, home: Path, urls: list[str]) -> None:
        feeds = "".join(f"feed 'f{n}' '{url}'\n" for n, url in enumerate(urls))
        (home / "sfeedrc").write_text(f'sfeedpath="{home}/feeds"\nfeeds() {{\n{feeds}}}\n')
        (home / "feeds").mkdir()

    def command(self, home: Path) -> list[str]:
        return ["sfeed_update", str(home / "sfeedrc")]


class Feed2exec(Program):
    name = "feed2exec"

    def version(self) -> str:
        return package("feed2exec")

    def prepare(self, home: Path, urls: list[str]) -> None:
        feeds = "".join(f"[f{n}]\nurl = {url}\noutput = feed2exec.plugins.null\n" for n, url in enumerate(urls))
        (home / "feed2exec.ini").write_text(feeds)

    def command(self, home: Path) -> list[str]:
        return ["/usr/bin/feed2exec", "--config", "feed2exec.ini", "--database", "feeds.db", "fetch"]


class Reader(Program):
    name = "reader"

    def version(self) -> str:
        return printed(str(TOOLS / "venv/bin/python"), "-c", "import reader; print(reader.__version__)")

    def prepare(self, home: Path, urls: list[str]) -> None:
        (home / "poll.py").write_text(
            "from reader import make_reader\n"
            "reader = make_reader('reader.db')\n"
            f"for url in {urls!r}:\n    reader.add_feed(url, exist_ok=True)\n"
            "reader.update_feeds(scheduled=False)\n"
        )

    def command(self, home: Path) -> list[str]:
        return [str(TOOLS / "venv/bin/python"), "poll.py"]


class FeedEmitter(Program):
    name = "rss-feed-emitter"
    endless = True

    def version(self) -> str:
        return printed("node", "-p", f"require('{TOOLS}/npm/node_modules/rss-feed-emitter/package.json').version")

    def prepare(self, home: Path, urls: list[str]) -> None:
        (home / "poll.js").write_text(
            f"const Emitter = require('{TOOLS}/npm/node_modules/rss-feed-emitter');\n"
            f"const emitter = new Emitter(); emitter.on('error', () => {{}});\nemitter.add({{url: {urls!r}, refresh: 3600000}});\n"
        )

    def command(self, home: Path) -> list[str]:
        return ["node", "poll.js"]


class TinyTinyRss(Program):
    """Its PostgreSQL is private to the run, and counts neither for its CPU nor for its memory."""

    name = "tt-rss"
    package = Path("/usr/share/tt-rss")
    services = Path(__file__).resolve().parent / "services"

    def version(self) -> str:
        return package("tt-rss").split("+")[0]

    def prepare(self, home: Path, urls: list[str]) -> None:
        # It refuses to run as root.
        home.chmod(0o777)
        self.environment = os.environ | {"FEEDFLEET_SERVICES": str(home / "servers")}
        self.call(str(self.services), "up", "postgres")
        found = re.search(r"postgres(?:ql)?://(\w+)(?::(\w*))?@([\d.]+):(\d+)/(\w+)", self.call(str(self.services), "urls"))
        assert found, "dev/services prints no URL of PostgreSQL"
        user, password, host, port, database = found.groups()
        self.url = found[0]
        shutil.copytree(self.package / "www", home / "www", symlinks=False)
        folders = [home / "lock", home / "cache", *(home / "cache" / name for name in ["images", "upload", "export", "feeds"])]
        for folder in [*folders, home / "www/feed-icons"]:
            folder.mkdir(exist_ok=True)
            folder.chmod(0o777)
        database = {"type": "pgsql", "server": host, "port": port, "user": user, "name": database, "pass": password or ""}
        own = " ".join(f"$db{key} = '{value}';" for key, value in database.items())
        config = (self.package / "www/config.php").read_text().replace("include_once('/etc/tt-rss/database.php');", own)
        config = config.replace("/var/lib/tt-rss", str(home / "lock")).replace("/var/cache/tt-rss", str(home / "cache"))
        config = config.replace("%SELF_URL_PATH", "http://127.0.0.1/")
        (home / "www/config.php").write_text(config)
        self.call("psql", "--quiet", self.url, "--file", str(self.package / "schema/ttrss_schema_pgsql.sql"))
        rows = ",".join(f"(1, '{url}', '{url}')" for url in urls)
        # What its first login does: it polls for people who have logged in.
        add = (
            f"INSERT INTO ttrss_feeds (owner_uid, title, feed_url) VALUES {rows}; UPDATE ttrss_users SET last_login = now();"
            "INSERT INTO ttrss_user_prefs (owner_uid, pref_name, value) SELECT 1, pref_name, def_value FROM ttrss_prefs"
        )
        self.call("psql", "--quiet", self.url, "--command", add)

    def call(self, *command: str) -> str:
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True).stdout

    def command(self, home: Path) -> list[str]:
        # All feeds are due, and no copy from the last half minute takes the place of a request.
        for copy in (home / "cache/feeds").iterdir():
            copy.unlink()
        due = "UPDATE ttrss_feeds SET last_updated = now() - interval '1 day', last_update_started = NULL"
        self.call("psql", "--quiet", self.url, "--command", due)
        return ["setpriv", "--reuid", "nobody", "--clear-groups", "php", str(home / "www/update.php"), "--feeds"]

    def clean_up(self) -> None:
        self.call(str(self.services), "down")


def shortest_gap(requests: list[Request]) -> float | None:
    last: dict[str, float] = {}
    gaps = []
    for request in requests:
        if request.host in last:
            gaps.append(request.at - last[request.host])
        last[request.host] = request.at
    return min(gaps, default=None)


@contextlib.contextmanager
def prepared(program: Program, urls: list[str]) -> Iterator[Path]:
    """A folder in which the program has these feeds."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            program.prepare(Path(folder), urls)
            yield Path(folder)
        finally:
            program.clean_up()


def rounds(programs: list[Program], origin: Origin) -> None:
    urls = [f"http://198.18.1.{n % HOSTS + 1}/f{n}" for n in range(FEEDS)]
    print(f"\n{FEEDS} feeds of {len(document('f0')) // 1000} kB on {HOSTS} hosts\n")
    print("| | round | wall time | CPU | memory | requests | 304 | shortest gap at a host |")
    print("|---|---|---|---|---|---|---|---|")
    for program in programs:
        with prepared(program, urls) as home:
            for name in ["cold", "warm"]:
                run = program.run(origin, home, FEEDS, 4 * PATIENCE)
                wanted = [request for request in run.requests if re.fullmatch(r"/f\d+", request.path)]
                share = sum(request.status == 304 for request in wanted) * 100 // max(len(wanted), 1)
                gap = shortest_gap(run.requests)
                print(
                    f"| {program.name} {program.version()} | {name} | {run.wall:.1f} s | {run.cpu:.2f} s | {run.memory:.0f} MB "
                    f"| {len(run.requests)} | {share} % | {'-' if gap is None else f'{gap * 1000:.0f} ms'} |",
                    flush=True,
                )
                if len(wanted) < FEEDS:
                    print((home / "out").read_text(errors="replace")[-1000:], file=sys.stderr)


def twice(program: Program, origin: Origin, path: str) -> tuple[Run, Run]:
    with prepared(program, [f"http://198.18.2.1{path}"]) as home:
        first = program.run(origin, home, 1)
        return first, program.run(origin, home, 1)


def asks_again(runs: tuple[Run, Run], path: str) -> str:
    again = [request for request in runs[1].requests if request.path == path]
    return "requests it again" if again else "does not request it again"


def ended(run: Run) -> str:
    return f"{run.wall:.0f} s" if run.code is not None else f"not within {PATIENCE:.0f} s"


def misbehaviour(programs: list[Program], origin: Origin) -> None:
    print("\n| | 429 with Retry-After: 3600, next run | 410, next run | 301, next run | bomb (512 MB from 0.5 MB) | endless body | hanging server |")
    print("|---|---|---|---|---|---|---|")
    for program in programs:
        moved = twice(program, origin, "/301")[1]
        old = any(request.path == "/301" for request in moved.requests)
        [bomb, endless, hang] = [once(program, origin, path) for path in ["/bomb", "/endless", "/hang"]]
        received = sum(request.sent for request in endless.requests) / 1e6
        cells = [
            asks_again(twice(program, origin, "/429"), "/429"),
            asks_again(twice(program, origin, "/410"), "/410"),
            "the old address" if old else "the new address",
            f"{bomb.memory:.0f} MB of memory, {ended(bomb)}",
            f"stops after {received:.0f} MB, {ended(endless)}" if endless.code is not None else f"still reads after {received:.0f} MB",
            f"gives up after {ended(hang)}" if hang.code is not None else ended(hang),
        ]
        print(f"| {program.name} | {' | '.join(cells)} |", flush=True)


def once(program: Program, origin: Origin, path: str) -> Run:
    with prepared(program, [f"http://198.18.2.1{path}"]) as home:
        # A program that keeps running ends only by its own limits here.
        return program.run(origin, home, 1_000_000)


def main() -> None:
    if os.environ.get("PEERS_INSIDE") != "1":
        os.environ["PEERS_INSIDE"] = "1"
        inside = ["unshare", "--net", "sh", "-c", f'PATH="$PATH:/sbin:/usr/sbin"; ip link set lo up; ip route add local {NETWORK} dev lo; exec "$0" "$@"']
        os.execvp("unshare", [*inside, sys.executable, *sys.argv])
    programs: list[Program] = [
        Feedfleet(sys.argv[1]), Newsboat(), Rss2email(), Sfeed(), Feed2exec(), Reader(), FeedEmitter(), TinyTinyRss(),
    ]  # fmt: skip
    wanted = sys.argv[2:]
    programs = [program for program in programs if not wanted or program.name in wanted]
    origin = Origin()
    rounds(programs, origin)
    misbehaviour(programs, origin)


if __name__ == "__main__":
    main()
