// For development: a server with data and traffic behind the built page.
// `POSTRIDER_BINARY=… node tests/run-world.mjs [port] [events per second]`
import { startSite } from './site.mjs';
import { makeWorld, send } from './world.mjs';

const world = await makeWorld();
const site = await startSite(() => world.server.base, Number(process.argv[2] ?? 0));
const rate = Number(process.argv[3] ?? 5);
console.log(`page: ${site.base}\napi:  ${world.server.base}\nkey:  ${world.server.key}`);
let n = 5000;
setInterval(() => void send(world.server, (n += rate), rate).catch((error) => console.error(String(error))), 1000);
for (const signal of ['SIGINT', 'SIGTERM']) {
  process.on(signal, async () => {
    await world.close();
    process.exit(0);
  });
}
