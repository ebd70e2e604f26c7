#!/usr/bin/env python3
"""Stores each event of a fleet once, in order, in an SQLite file. Uses only Python's standard library.

    python3 consumer.py FILE.db [http://127.0.0.1:7878]        reads a token from FEEDFLEET_TOKEN

An event's row and the cursor are stored in one transaction. This program, the fleet and the connection between them may
therefore fail at any time: it continues after the last event that it has stored, and no event is lost or duplicated.
"""

import http.client
import json
import os
import sqlite3
import sys
import time
import urllib.error
import urllib.request

# An idle stream sends a comment every 15 seconds.
SILENCE = 45


def main(path, server="http://127.0.0.1:7878"):
    store = sqlite3.connect(path, isolation_level=None)
    store.execute("CREATE TABLE IF NOT EXISTS event (position INTEGER PRIMARY KEY AUTOINCREMENT, epoch TEXT, seq INTEGER, kind TEXT, event TEXT)")
    store.execute("CREATE TABLE IF NOT EXISTS cursor (one INTEGER PRIMARY KEY CHECK (one = 1), epoch TEXT, seq INTEGER)")
    failure = None
    while True:
        try:
            follow(store, server)
            failure = None
        except urllib.error.HTTPError as error:
            if error.code == 410:
                restart(store, json.load(error))
            elif error.code < 500 and error.code not in (408, 429):
                sys.exit(f"{server} responded with {error.code}: {error.read().decode()}")
        except (OSError, http.client.HTTPException) as error:
            # The fleet is unavailable, was restarted, or sent nothing for too long. Reports each reason once.
            if str(error) != failure:
                failure = str(error)
                print(f"{server}: {failure}; retrying", file=sys.stderr)
        time.sleep(0.5)


def follow(store, server):
    """Stores events until the stream ends."""
    epoch, seq = cursor(store)
    address = f"{server}/api/v1/events?after={seq}" + (f"&epoch={epoch}" if epoch else "")
    request = urllib.request.Request(address, headers={"Accept": "text/event-stream"})
    if token := os.environ.get("FEEDFLEET_TOKEN"):
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=SILENCE) as stream:
        for kind, data in events(stream):
            event = json.loads(data)
            if kind == "epoch":
                if epoch not in (None, event["epoch"]):
                    restart(store, event)
                    return
                epoch = event["epoch"]
            else:
                keep(store, event, data)


def events(stream):
    """Yields the kind and data of each server-sent event. Ignores an event that is incomplete when the stream ends."""
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


def keep(store, event, data):
    """Stores an event and the cursor in one transaction."""
    store.execute("BEGIN IMMEDIATE")
    store.execute("INSERT INTO event (epoch, seq, kind, event) VALUES (?, ?, ?, ?)", (event["epoch"], event["seq"], event["kind"], data))
    store.execute("INSERT OR REPLACE INTO cursor VALUES (1, ?, ?)", (event["epoch"], event["seq"]))
    store.execute("COMMIT")


def cursor(store):
    """Returns the epoch and number of the last stored event."""
    return store.execute("SELECT epoch, seq FROM cursor").fetchone() or (None, 0)


def restart(store, response):
    """Moves the cursor to where the fleet's events begin. In the same epoch some events were missed; in another all are new."""
    epoch, seq = cursor(store)
    after = response["oldest"] - 1 if epoch == response["epoch"] and seq < response["oldest"] else 0
    print(f"continuing after {after} in epoch {response['epoch']}; the cursor was {seq} in {epoch}", file=sys.stderr)
    store.execute("INSERT OR REPLACE INTO cursor VALUES (1, ?, ?)", (response["epoch"], after))


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        pass
