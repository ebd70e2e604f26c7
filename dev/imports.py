#!/usr/bin/env python3
"""A large import and many pings, measured on one machine. Called by dev/bench imports.

    dev/imports.py PROGRAM [FEEDS [SECONDS]]

Starts `PROGRAM run` with a folder of its own, and an origin on a thousand loopback addresses. Prints what the import took, how
many requests each host got in the SECONDS (60) after it and how far apart, whether an export is the same set again; how many
fetches 10,000 pings on 100 feeds cause, and how long it takes from a ping to the stored entry. With the servers of `dev/services
env` in the environment only the import, into a cluster of two schedulers and two workers.
"""
import asyncio
import collections
import http.client
import json
import os
import re
import statistics
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
from fleet import Fleet, has_servers

PORT = 8123
HOSTS = [f"127.0.{part}.{number}" for part in range(1, 5) for number in range(1, 251)]
PINGED, PINGS = 100, 10_000


def config(more=""):
    return f'[fetch]\nallow_networks = ["127.0.0.0/8"]\nallow_ports = ["{PORT}"]\n' + more


class Origin:
    """Feeds with as many items as `items` says of their path; remembers when each host was asked."""

    def __init__(self):
        self.asked, self.items = [], {}
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
                items = "".join(f"<item><guid>{n}</guid><title>{n}</title></item>" for n in range(self.items.get(path, 1)))
                body = f"<rss version='2.0'><channel><title>{path}</title>{items}</channel></rss>"
                writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: application/rss+xml\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def closest(self, since):
        """The shortest time between two requests to one host after a time."""
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
    told, took, memory = fleet.command("import", source, "--json")
    print(f"import of {feeds} feeds: {took:.1f} s, {memory:.0f} MiB the command, {fleet.most_memory()} MiB the fleet;", told.strip(), flush=True)
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
    """The most requests of one kind within an interval of so many seconds, by the origin's log."""
    counts, recent = collections.Counter(), collections.deque()
    most = 0
    for at, host, _ in list(origin.asked):
        recent.append((at, of(host)))
        counts[of(host)] += 1
        while recent[0][0] <= at - seconds:
            counts[recent.popleft()[1]] -= 1
        most = max(most, counts[of(host)])
    return most


def pings(program, folder, origin):
    for spread in ("0s", "60s"):
        fleet = Fleet(program, folder, config(f'[policy]\nping_spread = "{spread}"\n[api]\npings_per_minute = 1000000\n'))
        addresses = [f"http://{HOSTS[number]}:{PORT}/{spread}-{number}" for number in range(PINGED)]
        ids = {url: fleet.call("POST", "/api/v1/feeds", {"url": url})["id"] for url in addresses}
        while sum(path.startswith(f"/{spread}-") for _, _, path in origin.asked) < PINGED:
            time.sleep(0.2)
        time.sleep(3)
        stored(fleet, origin, addresses, ids, spread)
        time.sleep(61 if spread == "60s" else 3)
        burst(fleet, origin, addresses, spread)
        fleet.stop()


def stored(fleet, origin, addresses, ids, spread):
    """From a ping to the stored entry: one feed after the other at no spread, all at once at the default."""
    waiting = {}
    delays = []
    for url in addresses:
        origin.items[url.split(str(PORT))[1]] = 2
        waiting[ids[url]] = time.monotonic()
        fleet.call("POST", "/ping", {"url": url})
        if spread == "0s":
            delays += settle(fleet, waiting)
    delays += settle(fleet, waiting)
    print(f"ping_spread {spread}: from ping to stored entry p50 {statistics.median(delays):.2f} s, most {max(delays):.2f} s")


def settle(fleet, waiting):
    delays = []
    while waiting:
        for feed, begun in list(waiting.items()):
            if len(fleet.call("GET", f"/api/v1/feeds/{feed}/entries")["items"]) == 2:
                delays.append(time.monotonic() - begun)
                del waiting[feed]
        time.sleep(0.01)
    return delays


def burst(fleet, origin, addresses, spread):
    before, begun = len(origin.asked), time.monotonic()

    def some(part):
        connection = http.client.HTTPConnection(fleet.address, timeout=60)
        for number in range(part, PINGS, 8):
            # Evenly over ten seconds.
            time.sleep(max(0, begun + 10 * number / PINGS - time.monotonic()))
            connection.request("POST", "/ping", json.dumps({"url": addresses[number % PINGED]}), {"Content-Type": "application/json"})
            connection.getresponse().read()

    threads = [threading.Thread(target=some, args=(part,)) for part in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    took = time.monotonic() - begun
    during = len(origin.asked) - before
    time.sleep(75 if spread == "60s" else 5)
    print(f"ping_spread {spread}: {PINGS} pings on {PINGED} feeds in {took:.1f} s: {during} fetches meanwhile, "
          f"{len(origin.asked) - before} in all; requests to a host at least {origin.closest(begun - 1):.2f} s apart")


def main():
    program, feeds, seconds, *_ = sys.argv[1:] + ["100000", "60"][len(sys.argv) - 2:]
    cluster = has_servers()
    with tempfile.TemporaryDirectory(prefix="feedfleet-imports-") as folder:
        imports(program, folder, Origin(), int(feeds), int(seconds), cluster) if int(feeds) else None
    if cluster:
        return
    with tempfile.TemporaryDirectory(prefix="feedfleet-pings-") as folder:
        global PORT
        PORT = 8124
        pings(program, folder, Origin())


main()
