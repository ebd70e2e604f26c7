"""Receives webhooks: python3 webhook_receiver.py SECRET [PORT]. Needs `pip install standardwebhooks`. See docs/webhooks.md."""
import http.server
import sqlite3
import sys

from standardwebhooks import Webhook, WebhookVerificationError

webhook = Webhook(sys.argv[1])
store = sqlite3.connect("received.db")
store.execute("CREATE TABLE IF NOT EXISTS request (id TEXT PRIMARY KEY)")
store.execute("CREATE TABLE IF NOT EXISTS entry (feed TEXT, id TEXT, title TEXT, PRIMARY KEY (feed, id))")


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            data = webhook.verify(body, dict(self.headers))["data"]
        except WebhookVerificationError as error:
            return self.answer(401, str(error))
        with store:  # one transaction: a request is processed once, or not at all
            if store.execute("INSERT OR IGNORE INTO request VALUES (?)", [self.headers["webhook-id"]]).rowcount:
                for event in data["events"]:
                    if entry := event.get("entry"):
                        row = (event["feed_url"], entry["id"], entry.get("title"))
                        store.execute("INSERT OR REPLACE INTO entry VALUES (?, ?, ?)", row)
                        print(event["seq"], entry.get("title"), flush=True)
        self.answer(200, "stored")

    def answer(self, status, text):
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


http.server.HTTPServer(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 8000), Receiver).serve_forever()
