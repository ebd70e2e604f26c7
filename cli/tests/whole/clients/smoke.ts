// Uses the types that openapi-typescript generated, with openapi-fetch: node smoke.js SERVER FEED
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

declare const process: { argv: string[] };
const [server, feed] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl: server });

function check(fits: boolean, what: unknown): asserts fits {
  if (!fits) throw new Error(JSON.stringify(what));
}

async function main() {
  const added = await client.POST("/api/v1/feeds", { body: { url: feed } });
  check(added.data?.url === feed, added.error);
  let entries: components["schemas"]["Entry"][] = [];
  for (let tries = 0; tries < 300 && entries.length === 0; tries++) {
    const answer = await client.GET("/api/v1/entries", { params: { query: { feed, limit: 2 } } });
    entries = answer.data?.items ?? [];
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  check(entries[0]?.feed_id === added.data.id, entries);
  const title: string | null | undefined = entries[0].title;
  check(typeof title === "string", entries[0]);
  const refused = await client.POST("/api/v1/feeds", { body: { url: "nonsense" } });
  check(refused.error?.code === "invalid_request", refused);
  console.log("entries", entries.length);
}

main();
