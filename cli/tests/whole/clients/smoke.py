"""Uses the client that openapi-python-client generated: smoke.py SERVER FEED"""

import sys
import time

from client import Client
from client.api.entries import list_entries
from client.api.feeds import add_feed, list_feeds
from client.api.subscriptions import list_subscriptions
from client.models import NewFeed

server, feed = sys.argv[1:]
with Client(base_url=server, raise_on_unexpected_status=True) as client:
    added = add_feed.sync(client=client, body=NewFeed(url=feed))
    assert added.new and added.url == feed, added
    assert [it.id for it in list_feeds.sync(client=client, limit=10).items] == [added.id]
    assert list_subscriptions.sync(client=client).items == []
    for _ in range(300):
        entries = list_entries.sync(client=client, feed=feed, limit=2)
        if entries.items:
            break
        time.sleep(0.1)
    entry = entries.items[0]
    assert entry.feed_id == added.id and isinstance(entry.title, str), entry
    refused = add_feed.sync_detailed(client=client, body=NewFeed(url="nonsense"))
    assert refused.status_code == 400 and refused.parsed.code == "invalid_request", refused
print("entries", len(entries.items))
