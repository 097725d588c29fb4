// Renews openapi.json from a running server: `npm run openapi -- http://127.0.0.1:8080`.
import { writeFileSync } from 'node:fs';

const server = process.argv[2] ?? process.env.POSTRIDER_URL ?? 'http://127.0.0.1:8080';
const answer = await fetch(new URL('/openapi.json', server));
if (!answer.ok) throw new Error(`${server}/openapi.json answered ${answer.status}`);
writeFileSync('openapi.json', `${JSON.stringify(await answer.json(), null, 1)}\n`);
console.log(`openapi.json is renewed from ${server}`);
