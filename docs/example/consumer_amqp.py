#!/usr/bin/env python3
"""Keeps each of a cluster's events once in an SQLite file, from the exchange at RabbitMQ. Needs pika (Debian: python3-pika).

    python3 consumer_amqp.py FILE.db amqp://USER:PASSWORD@HOST/VHOST [EXCHANGE [QUEUE [KEY]]]

The queue is durable and collects while this program is away. A message is acknowledged when it is stored; what was not
acknowledged comes again and is known by its number. So program, broker and fleet may be killed at any time.
"""

import json
import sqlite3
import sys
import time

import pika


def main(path, url, exchange="feedfleet.events", queue="feedfleet.events.example", key="#"):
    store = sqlite3.connect(path, isolation_level=None)
    store.execute(
        "CREATE TABLE IF NOT EXISTS told (place INTEGER PRIMARY KEY AUTOINCREMENT, epoch TEXT, seq INTEGER, kind TEXT, event TEXT, UNIQUE (epoch, seq))"
    )
    while True:
        try:
            follow(store, url, exchange, queue, key)
        except (pika.exceptions.AMQPError, OSError):
            pass  # away or restarted: it is asked again
        time.sleep(0.5)


def follow(store, url, exchange, queue, key):
    """Stores what comes until the connection ends."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.exchange_declare(exchange, "topic", durable=True)
    # What this program gives back by dying is no reason to put a message aside, however often it does.
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": 2**31 - 1})
    channel.queue_bind(queue, exchange, key)
    channel.basic_qos(prefetch_count=100)
    print("listening", flush=True)
    for method, _, body in channel.consume(queue):
        told = json.loads(body)
        row = (told["epoch"], told["seq"], told["kind"], body.decode())
        store.execute("INSERT OR IGNORE INTO told (epoch, seq, kind, event) VALUES (?, ?, ?, ?)", row)
        channel.basic_ack(method.delivery_tag)


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 6:
        sys.exit(__doc__)
    main(*sys.argv[1:])
