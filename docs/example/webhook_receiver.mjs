// Receives webhooks: node webhook_receiver.mjs KEY [PORT]. KEY is the secret (whsec_..) or, for Ed25519, the public key (whpk_..).
// Uses only Node's own modules. See docs/webhooks.md.
import { createHmac, createPublicKey, timingSafeEqual, verify } from "node:crypto";
import { createServer } from "node:http";

const key = Buffer.from(process.argv[2].split("_")[1], "base64");
const isPublic = process.argv[2].startsWith("whpk_");
const spki = Buffer.concat([Buffer.from("302a300506032b6570032100", "hex"), key]);
const publicKey = isPublic && createPublicKey({ key: spki, format: "der", type: "spki" });
const processed = new Set(); // a real receiver stores these with its results

function isSigned(headers, body) {
  const signed = Buffer.concat([Buffer.from(`${headers["webhook-id"]}.${headers["webhook-timestamp"]}.`), body]);
  const isRecent = Math.abs(Date.now() / 1000 - Number(headers["webhook-timestamp"])) < 300;
  return isRecent && (headers["webhook-signature"] ?? "").split(" ").some((signature) => {
    const [version, text] = signature.split(",");
    const bytes = Buffer.from(text ?? "", "base64");
    if (isPublic) return version === "v1a" && verify(null, signed, publicKey, bytes);
    const expected = createHmac("sha256", key).update(signed).digest();
    return version === "v1" && bytes.length === expected.length && timingSafeEqual(bytes, expected);
  });
}

createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  if (!isSigned(request.headers, body)) return response.writeHead(401).end("not signed");
  if (!processed.has(request.headers["webhook-id"])) {
    for (const event of JSON.parse(body).data.events) console.log(event.seq, event.kind, event.entry?.title ?? "");
    processed.add(request.headers["webhook-id"]);
  }
  response.writeHead(204).end();
}).listen(Number(process.argv[3] ?? 8000), "127.0.0.1");
