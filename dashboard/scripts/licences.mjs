// A plugin of Vite: which packages are in the page, and what their licences say.
import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';

const PACKAGE = /^(.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//;

/** The folders of the packages that some chunk has code or style from. */
function folders(bundle) {
  const found = new Set();
  for (const chunk of Object.values(bundle)) {
    for (const [id, { renderedLength }] of Object.entries(chunk.modules ?? {})) {
      const folder = PACKAGE.exec(id.replace(/^\0/, ''))?.[1];
      // A style's code is in a file of its own: here its length is 0.
      if (folder && (renderedLength > 0 || /\.css($|\?)/.test(id))) found.add(folder);
    }
  }
  return [...found].sort();
}

function describe(folder) {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  const file = readdirSync(folder).find((entry) => /^licen[cs]e(\.|$)/i.test(entry));
  if (!file) throw new Error(`${name}: no licence text in ${dirname(folder)}`);
  return { name, version, license: license ?? '', text: readFileSync(join(folder, file), 'utf8').trim() };
}

/** Puts `third-party.txt` into the page, and `packages.txt` (`name version|licence`) beside it. */
export function licences() {
  return {
    name: 'licences',
    generateBundle(_, bundle) {
      const packages = folders(bundle).map(describe);
      const list = packages.map(({ name, version, license }) => `${name} ${version}|${license}\n`).join('');
      const texts = packages.map(({ name, version, license, text }) => `${name} ${version} (${license})\n\n${text}\n`);
      const intro = 'This page contains code of these packages.\n';
      this.emitFile({ type: 'asset', fileName: 'packages.txt', source: list });
      this.emitFile({ type: 'asset', fileName: 'third-party.txt', source: [intro, ...texts].join(`\n${'-'.repeat(80)}\n\n`) });
    },
  };
}
