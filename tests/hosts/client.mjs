// Drives the server with the TypeScript SDK: node client.mjs '{"sdk": FILE, "stdio": FILE, "mode": ..., "command": ...}'
import { pathToFileURL } from "node:url";

const options = JSON.parse(process.argv[2]);
const { Client } = await import(pathToFileURL(options.sdk));
const { StdioClientTransport } = await import(pathToFileURL(options.stdio));
const client = new Client(
  { name: "typescript-client", version: "1" },
  options.mode ? { versionNegotiation: { mode: options.mode } } : {},
);
await client.connect(new StdioClientTransport({ command: options.command, args: options.args, env: options.env }));
const { tools } = await client.listTools();
const results = await Promise.all(
  options.calls.map((call) => client.callTool({ name: "web_search_prime", arguments: call })),
);
await client.close();
console.log(JSON.stringify({ tools, results }));
