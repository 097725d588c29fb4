// Verifies signed messages with the Standard Webhooks library for JavaScript.
// Arguments: the folder that the library is installed in, and a file of messages.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, file] = process.argv.slice(2);
const { Webhook } = createRequire(join(folder, "package.json"))("standardwebhooks");
const messages = JSON.parse(readFileSync(file, "utf8"));
if (messages.length === 0) throw new Error("there is nothing to verify");

for (const { secret, headers, body } of messages) {
  new Webhook(secret).verify(body, headers);
  for (const forged of [
    [`${body} `, headers],
    [body, { ...headers, "webhook-signature": "v1," }],
    [body, { ...headers, "webhook-id": `${headers["webhook-id"]}0` }],
  ]) {
    let accepted = true;
    try {
      new Webhook(secret).verify(...forged);
    } catch {
      accepted = false;
    }
    if (accepted) throw new Error("a forged message was accepted");
  }
}
