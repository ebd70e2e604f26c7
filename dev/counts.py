#!/usr/bin/env python3
"""Measures a reader that sends the subscriber counts of all its feeds each night. Called by dev/bench counts.

    dev/counts.py PROGRAM [FEEDS]

Adds FEEDS feeds (a million) to a paused fleet, then sends counts in requests of 5,000 lines, one after the other: all
new counts, the same again, and a twentieth of them changed; by id, and once by URL. Prints how long each took, the CPU
time of the fleet's own processes, the longest request, the peak memory of each process, and how long another client's
calls took in the meantime: a change of a feed (which waits for the store's locks), and a feed's page. Uses a cluster if
the environment contains the servers of `dev/services env`.
"""
import http.client
import json
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
from fleet import Fleet, has_servers

LINES = 5_000


def url(number):
    return f"http://host{number // 10}.example/feeds/{number}"


def sent(fleet, feeds, line):
    """Sends a line for each feed for which `line` returns one; returns lines, seconds, the longest request, and answers by kind."""
    connection = http.client.HTTPConnection(fleet.address, timeout=600)
    lines, longest, counts = 0, 0.0, {"new": 0, "changed": 0, "error": 0}
    begun = time.monotonic()
    for first in range(0, feeds, LINES):
        some = [line(number) for number in range(first, min(first + LINES, feeds))]
        body = "\n".join(json.dumps(one) for one in some if one)
        if not body:
            continue
        asked = time.monotonic()
        connection.request("POST", "/api/v1/feeds/bulk", body, {"Content-Type": "application/x-ndjson"})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        longest = max(longest, time.monotonic() - asked)
        for one in map(json.loads, text.splitlines()):
            lines += 1
            for kind in counts:
                counts[kind] += bool(one.get(kind))
    return lines, time.monotonic() - begun, longest, counts


class Beside:
    """Calls of another client, ten per second, while counts are sent."""

    def __init__(self, fleet):
        self.fleet, self.times, self.over = fleet, {"a change": [], "a look": []}, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def run(self):
        important = False
        while not self.over.wait(0.1):
            important = not important
            self.timed("a change", "PATCH", "/api/v1/feeds/1", {"important": important})
            self.timed("a look", "GET", "/api/v1/feeds/1")

    def timed(self, kind, method, path, body=None):
        begun = time.monotonic()
        self.fleet.call(method, path, body)
        self.times[kind].append(time.monotonic() - begun)

    def __str__(self):
        def summary(kind):
            times = sorted(self.times[kind])
            if not times:
                return f"{kind} -"
            return f"{kind} p50 {times[len(times) // 2] * 1e3:.0f}, p99 {times[(len(times) - 1) * 99 // 100] * 1e3:.0f}, most {times[-1] * 1e3:.0f} ms"

        return "; ".join(map(summary, self.times))


def main():
    program, feeds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
    with tempfile.TemporaryDirectory(prefix="feedfleet-counts-") as folder:
        fleet = Fleet(program, folder, "", has_servers())
        fleet.call("POST", "/api/v1/fleet/pause")
        # Calls of another client.
        fleet.call("POST", "/api/v1/feeds", {"url": "http://first.example/"})
        count = lambda number, night: {"subscribers": 1 + (number * 7919 + night) % 50}
        nights = [
            ("added", lambda number: {"url": url(number), **count(number, 0)}),
            ("all counts changed, by id", lambda number: {"id": number + 2, **count(number, 1)}),
            ("the same again", lambda number: {"id": number + 2, **count(number, 1)}),
            ("one in twenty changed", lambda number: {"id": number + 2, **count(number, 2 if number % 20 == 0 else 1)}),
            ("all counts changed, by URL", lambda number: {"url": url(number), **count(number, 3)}),
        ]
        for name, line in nights:
            busy = fleet.busy()
            with Beside(fleet) as beside:
                lines, seconds, longest, counts = sent(fleet, feeds, line)
            print(f"{name}: {lines} lines in {seconds:.0f} s, {lines / seconds:.0f}/s, {(fleet.busy() - busy) / lines * 1e6:.0f} us CPU each, longest request {longest:.2f} s, {counts}; "
                  f"{fleet.most_memory()} MiB; beside: {beside}", flush=True)
        fleet.stop()


main()
