#!/usr/bin/env python3
"""Measures every page of a large fleet. Called by dev/bench pages.

    dev/pages.py PROGRAM STORE_BENCH

Fills a store with PAGES_FEEDS feeds (a million) and PAGES_ENTRIES entries (ten million), starts PROGRAM on it with all polling
paused, and requests each page PAGES_CALLS times (200), one after the other; lists page after page. Prints the median and the 99th
percentile in milliseconds, and how many requests took longer than 50 ms, or 100 ms for searches. Exits with 1 if a page's 99th
percentile is longer, and fails if a list has no rows where the store has some. PAGES_STORE=FILE keeps the filled SQLite store in FILE, and uses it as it is if it exists. Uses SQLite, or, if the environment contains the servers of `dev/services env`, a scheduler on PostgreSQL.
"""
import html
import http.client
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.dont_write_bytecode = True
from fleet import Fleet, has_servers

FEEDS = int(os.environ.get("PAGES_FEEDS", "1000000"))
ENTRIES = int(os.environ.get("PAGES_ENTRIES", "10000000"))
CALLS = int(os.environ.get("PAGES_CALLS", "200"))
KEPT = os.environ.get("PAGES_STORE")
PAGE, SEARCH = 50, 100
# Lists are followed for this many pages, and then from the beginning again.
DEPTH = 20
LISTS = [
    "feeds", "feeds?sort=subscribers", "feeds?sort=next_due", "feeds?category=D", "feeds?status=paused", "feeds?status=active&sort=next_due",
    "feeds?failure=dns", "feeds?failing=true", "feeds?penalised=true", "feeds?penalised=true&failure=dns", "feeds?label=harbour", "feeds?host=shared.example%3A443",
    "feeds?host=shared.example%3A443&sort=subscribers", "feeds?category=C&failure=dns&sort=subscribers",
    "entries", "entries?label=harbour", "entries?category=A", "entries?host=shared.example%3A443", "entries?language=en",
    "feeds?sort=category", "feeds?sort=category&order=desc", "feeds?sort=last_polled", "feeds?sort=last_polled&order=desc", "feeds?sort=next_due&order=desc",
    "feeds?sort=subscribers&order=asc", "feeds?status=paused&sort=category", "feeds?category=C&sort=last_polled", "hosts?order=desc", "hosts?sort=feeds&order=asc",
    "hosts?sort=pace", "hosts?sort=state", "hosts?sort=state&order=desc", "audit?order=asc", "audit?sort=who", "audit?sort=request&order=desc",
    "subscriptions?sort=last",
    "hosts", "hosts?sort=feeds", "audit", "requeues", "requeues?sort=progress", "requeues?sort=started", "subscriptions",
    "subscriptions?sort=target", "subscriptions?sort=state", "subscriptions?sort=lag", "subscriptions?sort=delivered",
    "entries.atom", "entries.json", "entries.atom?label=harbour", "entries.atom?category=A", "entries.json?label=harbour",
    "entries.json?host=shared.example%3A443",
]
SEARCHES = [
    "feeds?q=feed-7777", "feeds?q=wombat", "feeds?q=https", "feeds?q=journal", "feeds?q=great+7", "feeds?q=ed", "feeds?q=qz",
    "feeds?q=news&category=A&failure=dns&sort=next_due",
    "entries?q=fog", "entries?q=wombat", "entries?q=harbour+9", "entries?q=wombat&label=harbour", "entries?q=tides&language=en&category=B",
    "entries.atom?q=fog", "entries.json?q=tides&label=harbour",
]
# Nothing in the filled store matches these.
WITHOUT_ROWS = {"feeds?q=wombat", "feeds?q=qz", "entries?q=wombat", "entries?q=wombat&label=harbour", "entries?q=tides&language=en&category=B"}
# What these match is behind the pages that are followed, in small stores; great 7 is in PostgreSQL's titles only.
UNCERTAIN = {"feeds?q=feed-7777", "feeds?q=great+7", "entries?q=harbour+9"}
# A cell of a table, or an entry.
ROW = re.compile(r'<td|<article>|<entry>|"_feedfleet"')
OTHERS = ["", "config", "feeds/add", "status", "docs/api", "login", "subscriptions/1", "status?url=https%3A%2F%2Fshared.example%2Fblog%2Ffeed%2F-3"]


def request(connection, path):
    """Returns the milliseconds until the whole page was read, and its text."""
    begun = time.perf_counter()
    connection.request("GET", "/" + path, headers={"Accept": "text/html"})
    answer = connection.getresponse()
    text = answer.read().decode()
    assert answer.status in (200, 303), (path, answer.status, text[:500])
    return 1000 * (time.perf_counter() - begun), text


def relative(link):
    """Returns a link without its origin, which feeds have in theirs."""
    parts = urllib.parse.urlsplit(link)
    return f"{parts.path.lstrip('/')}?{parts.query}"


def pages_of(connection, path):
    """Requests a list page by page. Fails if none of the pages has a row, unless none is expected."""
    times, at, rows = [], path, 0
    while len(times) < CALLS:
        taken, text = request(connection, at)
        times.append(taken)
        rows += len(ROW.findall(text))
        further = re.search(r'rel="next" href="([^"]+)"', text)
        at = relative(html.unescape(further[1])) if further and len(times) % DEPTH else path
    assert path in UNCERTAIN or (rows == 0) == (path in WITHOUT_ROWS), f"/{path}: {rows} rows"
    return times


def measure(address):
    connection = http.client.HTTPConnection(address, timeout=60)
    draw = random.Random(1)
    feeds = [f"feeds/{draw.randint(1, FEEDS)}" for _ in range(CALLS)]
    of_feeds = [f"entries?feed={draw.randint(1, FEEDS)}" for _ in range(CALLS)]
    hosts = [f"hosts/{urllib.parse.quote(f'h{draw.randint(1, FEEDS // 4)}.example.org:443')}" for _ in range(CALLS)]
    rows = [("/" + path, PAGE, lambda path=path: pages_of(connection, path)) for path in LISTS]
    rows += [("/" + path, SEARCH, lambda path=path: pages_of(connection, path)) for path in SEARCHES]
    single = [(path or "/", [path] * CALLS) for path in OTHERS] + [("feeds/{id}", feeds), ("entries?feed={id}", of_feeds), ("hosts/{host}", hosts)]
    rows += [("/" + name.lstrip("/"), PAGE, lambda paths=paths: [request(connection, path)[0] for path in paths]) for name, paths in single]
    print(f"{'page':<70} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8}  slow")
    slow_pages = []
    for name, limit, run in rows:
        # Once for the caches.
        run()
        times = sorted(run())
        p50, p99 = times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)]
        slow = sum(taken > limit for taken in times)
        print(f"{name:<70} {p50:>8.1f} {p99:>8.1f} {times[-1]:>8.1f}  {slow or ''}", flush=True)
        if p99 > limit:
            slow_pages.append(name)
    return slow_pages


def until_scheduled(fleet):
    """Waits until the schedule is filled, which a cluster's scheduler does after it is ready: lists by due time wait for the same server."""
    before = None
    while (scheduled := fleet.call("GET", "/api/v1/stats")["scheduled"]) != before:
        before = scheduled
        time.sleep(5)


def main():
    program, store_bench = sys.argv[1:]
    cluster = has_servers()

    def fill(fleet):
        file = os.path.join(fleet.data, "feedfleet.db")
        place = [os.environ["FEEDFLEET_STORE__URL"], fleet.namespace] if cluster else [file]
        if KEPT and not cluster and os.path.exists(KEPT):
            # A second name of the same file: it is large, and pages change little of it.
            os.link(KEPT, file)
            return
        begun = time.monotonic()
        subprocess.run([store_bench, "fill", str(FEEDS), str(ENTRIES), *place], check=True)
        print(f"filled in {time.monotonic() - begun:.0f} s", flush=True)
        if KEPT and not cluster:
            os.link(file, KEPT)

    with tempfile.TemporaryDirectory(dir=os.path.dirname(KEPT) if KEPT else None) as folder:
        print(f"{FEEDS:,} feeds, {ENTRIES:,} entries, {'PostgreSQL' if cluster else 'SQLite'}", flush=True)
        fleet = Fleet(program, folder, "[api]\nstatus_per_minute = 1000000\n", cluster, ["scheduler"], fill)
        try:
            until_scheduled(fleet)
            slow = measure(fleet.address)
        finally:
            fleet.stop()
    if slow:
        sys.exit("too slow: " + ", ".join(slow))


if __name__ == "__main__":
    main()
