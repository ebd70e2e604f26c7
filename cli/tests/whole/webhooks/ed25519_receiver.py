"""Receives webhooks that are signed with Ed25519: python3 ed25519_receiver.py PUBLIC_KEY PORT. Needs `pip install cryptography`."""
import base64
import http.server
import json
import sys
import time

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

key = Ed25519PublicKey.from_public_bytes(base64.b64decode(sys.argv[1].removeprefix("whpk_")))


def is_signed(headers, body):
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    if abs(time.time() - int(headers["webhook-timestamp"])) > 300:
        return False
    for signature in headers["webhook-signature"].split():
        version, text = signature.split(",", 1)
        try:
            if version == "v1a":
                key.verify(base64.b64decode(text), signed)
                return True
        except InvalidSignature:
            pass
    return False


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        good = is_signed(self.headers, body)
        self.send_response(204 if good else 401)
        self.end_headers()
        for event in json.loads(body)["data"]["events"] if good else []:
            print(event["seq"], event["kind"], flush=True)

    def log_message(self, *_):
        pass


http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Receiver).serve_forever()
