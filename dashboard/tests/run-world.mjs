// For development: a server with data and traffic. `POSTRIDER_BINARY=… node tests/run-world.mjs [events per second]`
import { makeWorld, send } from './world.mjs';

const world = await makeWorld();
const rate = Number(process.argv[2] ?? 5);
console.log(`page: ${world.server.base}/\nkey:  ${world.server.key}`);
let n = 5000;
setInterval(() => void send(world.server, (n += rate), rate).catch((error) => console.error(String(error))), 1000);
for (const signal of ['SIGINT', 'SIGTERM']) {
  process.on(signal, async () => {
    await world.close();
    process.exit(0);
  });
}
