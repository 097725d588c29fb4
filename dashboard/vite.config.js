import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';
import { fileURLToPath } from 'node:url';
import { licences } from './scripts/licences.mjs';

// The server that `npm run dev` passes API calls on to.
const server = process.env.POSTRIDER_URL ?? 'http://127.0.0.1:8080';
const paths = ['/v1', '/healthz', '/readyz', '/metrics', '/openapi.json', '/docs'];

// The client of the API, from its sources: built and checked together with the page.
const client = (file) => fileURLToPath(new URL(`../clients/typescript/src/${file}`, import.meta.url));

export default defineConfig({
  resolve: { alias: { '@postrider/client': client('index.ts'), '#crypto': client('crypto.ts') } },
  // Relative, so that the page works below any prefix of a reverse proxy.
  base: './',
  plugins: [svelte(), licences()],
  build: {
    target: 'es2022',
    // An inlined asset would be a data: URL, which the strict CSP refuses.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: {
    proxy: Object.fromEntries(paths.map((path) => [path, { target: server, changeOrigin: true }])),
  },
});
