// Verifies webhooks with the reference library of Standard Webhooks, as a receiver in Node does. Each line of its input is a delivery as
// JSON: secret, headers, body. It prints a line for each that it refuses, and at the end how many it accepted. Its argument is the folder
// in which npm has installed the library.
const { createRequire } = require("node:module");
const { resolve } = require("node:path");
const { createInterface } = require("node:readline");

const { Webhook } = createRequire(resolve(process.argv[2], "package.json"))("standardwebhooks");
const keys = new Map();
let accepted = 0;

createInterface({ input: process.stdin })
  .on("line", (line) => {
    const { secret, headers, body } = JSON.parse(line);
    if (!keys.has(secret)) keys.set(secret, new Webhook(secret));
    try {
      const { type, timestamp, data } = keys.get(secret).verify(body, headers);
      if (!type || Number.isNaN(Date.parse(timestamp)) || !data) throw new Error("the body is not that of a webhook");
      accepted++;
    } catch (e) {
      console.log(`refused ${headers["webhook-id"]}: ${e.message}`);
    }
  })
  .on("close", () => console.log(`accepted ${accepted}`));
