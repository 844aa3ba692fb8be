import { gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";

const MOST_BYTES = 120_000;

/** The whole script, packed as a browser gets it, stays small: a build beyond the limit fails. */
function small(): Plugin {
  return {
    name: "small",
    generateBundle(_, bundle) {
      let bytes = 0;
      for (const part of Object.values(bundle)) {
        if (part.type === "chunk") bytes += gzipSync(part.code).length;
      }
      if (bytes > MOST_BYTES) this.error(`the script has ${bytes} bytes, packed; ${MOST_BYTES} is the limit`);
      this.info?.(`the script has ${bytes} bytes, packed, of ${MOST_BYTES}`);
    },
  };
}

export default defineConfig({
  base: "/dashboard/",
  plugins: [small()],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: { outDir: "../src/forebay/dashboard/static", emptyOutDir: true, assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  // For work on the page: `npm run dev` beside a server on the usual port.
  server: { proxy: { "/v1": "http://127.0.0.1:8080", "/openapi": "http://127.0.0.1:8080" } },
});
