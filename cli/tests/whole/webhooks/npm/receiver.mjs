// Receives webhooks with the package standardwebhooks of npm: node receiver.mjs SECRET PORT FOLDER-WITH-NODE_MODULES
import { createRequire } from "node:module";
import { createServer } from "node:http";

const { Webhook } = createRequire(`${process.argv[4]}/`)("standardwebhooks");
const webhook = new Webhook(process.argv[2]);

createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  try {
    const document = webhook.verify(Buffer.concat(chunks).toString(), request.headers);
    for (const event of document.data.events) console.log(event.seq, event.kind);
    response.writeHead(204).end();
  } catch (error) {
    response.writeHead(401).end(String(error));
  }
}).listen(Number(process.argv[3]), "127.0.0.1");
