#!/usr/bin/env python3
"""Stores each event of a cluster once in an SQLite file, from the exchange in RabbitMQ. Requires pika (Debian: python3-pika).

    python3 consumer_amqp.py FILE.db amqp://USER:PASSWORD@HOST/VHOST [EXCHANGE [QUEUE [KEY]]]

The queue is durable and collects events while this program is not running. It acknowledges a message after storing it.
Messages that were not acknowledged are delivered again, and are recognised by their number. This program, the broker and
the fleet may therefore fail at any time.
"""

import json
import sqlite3
import sys
import time

import pika


def main(path, url, exchange="feedfleet.events", queue="feedfleet.events.example", key="#"):
    store = sqlite3.connect(path, isolation_level=None)
    store.execute(
        "CREATE TABLE IF NOT EXISTS event (position INTEGER PRIMARY KEY AUTOINCREMENT, epoch TEXT, seq INTEGER, kind TEXT, event TEXT, UNIQUE (epoch, seq))"
    )
    failure = None
    while True:
        try:
            follow(store, url, exchange, queue, key)
        except (pika.exceptions.AMQPError, OSError) as error:
            # The broker is unavailable or was restarted. Reports each reason once.
            if repr(error) != failure:
                failure = repr(error)
                print(f"{failure}; retrying", file=sys.stderr)
        time.sleep(0.5)


def follow(store, url, exchange, queue, key):
    """Stores events until the connection ends."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.exchange_declare(exchange, "topic", durable=True)
    # Redelivery because this program was killed must not dead-letter a message, however often it happens.
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": 2**31 - 1})
    channel.queue_bind(queue, exchange, key)
    channel.basic_qos(prefetch_count=100)
    print("listening", flush=True)
    for method, _, body in channel.consume(queue):
        event = json.loads(body)
        row = (event["epoch"], event["seq"], event["kind"], body.decode())
        store.execute("INSERT OR IGNORE INTO event (epoch, seq, kind, event) VALUES (?, ?, ?, ?)", row)
        channel.basic_ack(method.delivery_tag)


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 6:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        pass
