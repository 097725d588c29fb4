// Puts what was built into embed/, also compressed, with a list for the server's build script: path, type, entity
// tag, and whether the name has a hash of the content.
import { createHash } from 'node:crypto';
import { copyFileSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { extname } from 'node:path';
import { gzipSync } from 'node:zlib';

const TYPES = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.txt': 'text/plain; charset=utf-8',
};
/** For the check of licences only. */
const LIST = 'packages.txt';

for (const name of readdirSync('embed')) if (name !== '.gitignore') rmSync(`embed/${name}`, { recursive: true });
mkdirSync('embed/assets');
const top = readdirSync('dist').filter((name) => name !== 'assets' && name !== LIST);
const assets = readdirSync('dist/assets').map((name) => `assets/${name}`);
const lines = [...top, ...assets].sort().map((path) => {
  const type = TYPES[extname(path)];
  if (!type) throw new Error(`${path}: what type is this? Add it to scripts/embed.mjs`);
  const bytes = readFileSync(`dist/${path}`);
  writeFileSync(`embed/${path}`, bytes);
  writeFileSync(`embed/${path}.gz`, gzipSync(bytes, { level: 9 }));
  const tag = createHash('sha256').update(bytes).digest('base64url').slice(0, 22);
  return [path, type, `"${tag}"`, path.startsWith('assets/') ? 1 : 0].join('\t');
});
copyFileSync(`dist/${LIST}`, `embed/${LIST}`);
writeFileSync('embed/files.tsv', lines.join('\n') + '\n');
