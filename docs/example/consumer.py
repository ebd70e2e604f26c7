#!/usr/bin/env python3
"""Follows a fleet's events and keeps each of them once, in order, in an SQLite file. Only Python's own library is needed.

    python3 consumer.py FILE.db [http://127.0.0.1:7878]        a token goes into FEEDFLEET_TOKEN

What an event does here (a row) and the cursor after it are stored in one transaction. So this program, the fleet and the
way between them may be killed at any time: it goes on after the last event that it stored, and none is lost or doubled.
"""

import http.client
import json
import os
import sqlite3
import sys
import time
import urllib.error
import urllib.request

# The fleet says something every 15 seconds.
SILENCE = 45


def main(path, server="http://127.0.0.1:7878"):
    store = sqlite3.connect(path, isolation_level=None)
    store.execute("CREATE TABLE IF NOT EXISTS told (place INTEGER PRIMARY KEY AUTOINCREMENT, epoch TEXT, seq INTEGER, kind TEXT, event TEXT)")
    store.execute("CREATE TABLE IF NOT EXISTS cursor (one INTEGER PRIMARY KEY CHECK (one = 1), epoch TEXT, seq INTEGER)")
    while True:
        try:
            follow(store, server)
        except urllib.error.HTTPError as refusal:
            if refusal.code == 410:
                begin_where_it_says(store, json.load(refusal))
            elif refusal.code < 500:
                sys.exit(f"{server} refuses: {refusal.code} {refusal.read().decode()}")
        except (OSError, http.client.HTTPException):
            pass  # away, restarted, or silent for too long: it is asked again
        time.sleep(0.5)


def follow(store, server):
    """Stores what comes until the stream ends."""
    epoch, seq = cursor(store)
    address = f"{server}/api/v1/events?after={seq}" + (f"&epoch={epoch}" if epoch else "")
    request = urllib.request.Request(address, headers={"Accept": "text/event-stream"})
    if token := os.environ.get("FEEDFLEET_TOKEN"):
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=SILENCE) as stream:
        for kind, data in events(stream):
            told = json.loads(data)
            if kind == "epoch":
                if epoch not in (None, told["epoch"]):
                    begin_where_it_says(store, told)
                    return
                epoch = told["epoch"]
            else:
                keep(store, told, data)


def events(stream):
    """Server-sent events as pairs of kind and data. One that is not whole when the stream breaks off is none."""
    kind, data = "", []
    for line in stream:
        name, _, value = line.decode().rstrip("\r\n").partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "data":
            data.append(value)
        elif line.strip() == b"":
            if data:
                yield kind, "\n".join(data)
            kind, data = "", []


def keep(store, told, data):
    """The effect and the cursor, both or none."""
    store.execute("BEGIN IMMEDIATE")
    store.execute("INSERT INTO told (epoch, seq, kind, event) VALUES (?, ?, ?, ?)", (told["epoch"], told["seq"], told["kind"], data))
    store.execute("INSERT OR REPLACE INTO cursor VALUES (1, ?, ?)", (told["epoch"], told["seq"]))
    store.execute("COMMIT")


def cursor(store):
    return store.execute("SELECT epoch, seq FROM cursor").fetchone() or (None, 0)


def begin_where_it_says(store, told):
    """What comes after the cursor is not there any more. In its own epoch some events were missed; in another all are new."""
    epoch, seq = cursor(store)
    after = told["oldest"] - 1 if epoch == told["epoch"] and seq < told["oldest"] else 0
    print(f"going on after {after} in epoch {told['epoch']}; it was {seq} in {epoch}", file=sys.stderr)
    store.execute("INSERT OR REPLACE INTO cursor VALUES (1, ?, ?)", (told["epoch"], after))


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
