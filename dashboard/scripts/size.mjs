// Prints what the first load costs, compressed, and fails above the limit.
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';

const LIMIT = 200 * 1024;
const html = readFileSync('dist/index.html', 'utf8');
const size = (path) => gzipSync(readFileSync(path), { level: 9 }).length;
const first = [...html.matchAll(/(?:src|href)="\.\/([^"]+)"/g)].map((match) => match[1]);
let total = size('dist/index.html');
for (const path of first) total += size(join('dist', path));
const all = readdirSync('dist/assets').reduce((sum, name) => sum + size(join('dist/assets', name)), 0);
console.log(`first load: ${(total / 1024).toFixed(1)} KB compressed (gzip); all files: ${(all / 1024).toFixed(1)} KB`);
if (total > LIMIT) throw new Error(`the first load is over ${LIMIT / 1024} KB`);
