// Builds the bundles into src/armillary/web: the same bytes for the same sources and lock file.
//
// charts.js holds the chart library alone, so that it changes, and is fetched, only when the library does; the other
// scripts find it as the global `ArmillaryCharts`. Each is one classic script: a page in one file cannot import modules.
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";

const here = path.dirname(fileURLToPath(import.meta.url));
const target = process.argv[2] ? path.resolve(process.argv[2]) : path.join(here, "../src/armillary/web");
const CHARTS = path.join(here, "src/shared/echarts.ts");
const ENTRIES = {
  charts: CHARTS,
  graph: "src/graph/main.ts",
  report: "src/report/main.ts",
  studio: "src/studio/main.ts",
  sweep: "src/sweep/main.ts",
  validation: "src/validation/main.ts",
};

const packages = new Map();
await mkdir(target, { recursive: true });
for (const [name, entry] of Object.entries(ENTRIES)) {
  const chartsApart = {
    name: "charts-apart",
    enforce: "pre",
    async resolveId(source, importer) {
      if (name === "charts" || !importer) return null;
      const found = await this.resolve(source, importer, { skipSelf: true });
      return found?.id === CHARTS ? { id: "armillary-charts", external: true } : found;
    },
  };
  const result = await build({
    root: here,
    configFile: false,
    logLevel: "warn",
    plugins: [chartsApart],
    define: { "process.env.NODE_ENV": '"production"', __DEV__: "false" },
    build: {
      write: false,
      target: "es2022",
      minify: "esbuild",
      cssCodeSplit: false,
      lib: {
        entry: path.resolve(here, entry),
        formats: ["iife"],
        name: name === "charts" ? "ArmillaryCharts" : `Armillary_${name}`,
        fileName: () => `${name}.js`,
        cssFileName: name,
      },
      rollupOptions: { output: { globals: { "armillary-charts": "ArmillaryCharts" } } },
    },
  });
  for (const file of result.flatMap((each) => each.output)) {
    const text = file.type === "chunk" ? file.code : file.source;
    await writeFile(path.join(target, file.fileName), `${String(text).trimEnd()}\n`);
    for (const module of Object.keys(file.modules ?? {})) {
      const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(module);
      if (found && file.modules[module].renderedLength) packages.set(found[1], [...(packages.get(found[1]) ?? []), `${name}.js`]);
    }
  }
}
await writeFile(path.join(target, "THIRD-PARTY.txt"), await thirdParty());

async function thirdParty() {
  const require = createRequire(import.meta.url);
  const parts = [
    "Parts of others in the scripts of this folder, and their licences. Written by `make studio`.\n",
  ];
  for (const name of [...packages.keys()].sort()) {
    const folder = path.join(here, "node_modules", name);
    const about = require(path.join(folder, "package.json"));
    const notices = [];
    const others = await readdir(path.join(folder, "licenses")).catch(() => []);
    for (const file of ["LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE", ...others.sort().map((each) => `licenses/${each}`)]) {
      const text = await readFile(path.join(folder, file), "utf8").catch(() => "");
      if (text) notices.push(text.trim().replace(/\r\n/g, "\n"));
    }
    const where = [...new Set(packages.get(name))].join(", ");
    parts.push(`${"=".repeat(100)}\n${name} ${about.version} (${about.license}), in ${where}\n\n${notices.join("\n\n")}\n`);
  }
  return parts.join("\n");
}
