#!/usr/bin/env python3
"""Measures a large import on one machine. Called by dev/bench imports.

    dev/imports.py PROGRAM [FEEDS [SECONDS]]

Starts `PROGRAM run` with a new folder, and an origin on a thousand loopback addresses. Prints the cost of the import,
how many requests each host got in the SECONDS (60) after it and how far apart, and whether an export contains the same
feeds. If the environment contains the servers of `dev/services env`, it imports into a cluster of two schedulers and two
workers.
"""
import asyncio
import collections
import os
import re
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
from fleet import Fleet, has_servers

PORT = 8123
HOSTS = [f"127.0.{part}.{number}" for part in range(1, 5) for number in range(1, 251)]


def config():
    return f'[fetch]\nallow_networks = ["127.0.0.0/8"]\nallow_ports = ["{PORT}"]\n'


class Origin:
    """Serves feeds with one item; records when each host was polled."""

    def __init__(self):
        self.asked = []
        self.loop = asyncio.new_event_loop()
        ready = threading.Event()
        threading.Thread(target=self.serve, args=(ready,), daemon=True).start()
        ready.wait()

    def serve(self, ready):
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(asyncio.start_server(self.answer, HOSTS, PORT, backlog=1024))
        ready.set()
        self.loop.run_forever()

    async def answer(self, reader, writer):
        try:
            while line := (await reader.readuntil(b"\r\n\r\n")).decode():
                path, host = line.split(" ", 2)[1], re.search(r"(?i)host: (\S+)", line)[1]
                self.asked.append((time.monotonic(), host, path))
                item = "<item><guid>0</guid><title>0</title></item>"
                body = f"<rss version='2.0'><channel><title>{path}</title>{item}</channel></rss>"
                writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: application/rss+xml\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def closest(self, since):
        """Returns the shortest time between two requests to one host after a time."""
        last, closest = {}, float("inf")
        for at, host, _ in self.asked:
            if at >= since and host in last:
                closest = min(closest, at - last[host])
            last[host] = at
        return closest


def urls(text):
    return sorted(re.findall(r'xmlUrl="([^"]+)"', text))


def imports(program, folder, origin, feeds, seconds, cluster):
    source = os.path.join(folder, "all.opml")
    with open(source, "w") as file:
        file.write('<?xml version="1.0"?><opml version="2.0"><body>')
        for number in range(feeds):
            if number % 100 == 0:
                file.write(("</outline>" if number else "") + f'<outline text="folder {number // 100}">')
            file.write(f'<outline type="rss" text="feed {number}" xmlUrl="http://{HOSTS[number % 1000]}:{PORT}/{number}"/>')
        file.write("</outline></body></opml>")
    fleet = Fleet(program, folder, config(), cluster)
    begun = time.monotonic()
    output, took, memory = fleet.command("import", source, "--json")
    print(f"import of {feeds} feeds: {took:.1f} s, {memory:.0f} MiB the command, {fleet.most_memory()} MiB the fleet;", output.strip(), flush=True)
    time.sleep(seconds)
    polled = len(origin.asked)
    passed = time.monotonic() - begun
    print(f"{passed:.0f} s after its begin {polled} feeds were polled (spread over an hour: {feeds * passed / 3600:.0f}), "
          f"at most {most_in(origin, 1, lambda _: 0)} a second and {most_in(origin, 10, lambda _: 0)} in ten seconds in all; "
          f"{fleet.most_memory()} MiB the fleet")
    print(f"requests to a host at least {origin.closest(0):.2f} s apart, at most {most_in(origin, 1, lambda host: host)} in a second "
          f"and {most_in(origin, 60, lambda host: host)} in a minute", flush=True)
    first = os.path.join(folder, "first.opml")
    _, took, memory = fleet.command("export", first)
    print(f"export: {took:.1f} s, {memory:.0f} MiB", flush=True)
    fleet.stop()
    again = Fleet(program, folder, config(), cluster)
    again.command("import", first)
    second, _, _ = again.command("export")
    again.stop()
    with open(source) as one, open(first) as two:
        same = urls(one.read()) == urls(two.read()) == urls(second)
    print(f"export and import again: the same set: {same}")


def most_in(origin, seconds, of):
    """Returns the maximum number of requests of one kind within an interval of that many seconds, from the origin's log."""
    counts, recent = collections.Counter(), collections.deque()
    most = 0
    for at, host, _ in list(origin.asked):
        recent.append((at, of(host)))
        counts[of(host)] += 1
        while recent[0][0] <= at - seconds:
            counts[recent.popleft()[1]] -= 1
        most = max(most, counts[of(host)])
    return most


def main():
    program, feeds, seconds, *_ = sys.argv[1:] + ["100000", "60"][len(sys.argv) - 2:]
    with tempfile.TemporaryDirectory(prefix="feedfleet-imports-") as folder:
        imports(program, folder, Origin(), int(feeds), int(seconds), has_servers())


main()
