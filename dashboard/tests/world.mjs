// A server with realistic data: healthy, failing, hanging, disabled and frozen destinations, dead
// letters, waiting retries, replays, tenants and keys.
import { HOSTILE, startReceivers } from './receivers.mjs';
import { Postrider } from './server.mjs';

const STATUS = ['NEW', 'CUR', 'PND', 'CPL'];
const pick = (list, n) => list[n % list.length];

export function task(n) {
  return {
    type: pick(['task.updated', 'task.updated', 'task.created', 'project.updated'], n),
    object: `tsk_${1000 + (n % 37)}`,
    old: { id: 1000 + n, status: pick(STATUS, n), priority: n % 5, assignee: { name: 'Ada', team: 'Logistics' }, tags: ['a', 'b'] },
    data: {
      id: 1000 + n,
      status: pick(STATUS, n + 1),
      priority: (n + 1) % 5,
      assignee: { name: pick(['Ada', 'Grace', 'Linus'], n), team: 'Logistics' },
      tags: ['a', pick(['b', 'c'], n)],
      note: n % 7 === 0 ? HOSTILE : `Order ${n} moved on`,
      history: Array.from({ length: 4 }, (_, k) => ({ step: k, at: new Date(1.7e12 + k * 3.6e6).toISOString(), by: 'system' })),
    },
  };
}

export async function send(server, from, count) {
  for (let n = 0; n < count; n += 500) {
    const batch = Array.from({ length: Math.min(500, count - n) }, (_, k) => task(from + n + k));
    await server.post('events/batch', batch);
  }
}

/** Ends with the server at `timeScale`, after a time in which its clock ran very fast. */
export async function makeWorld({ timeScale = 60 } = {}) {
  const receivers = await startReceivers();
  const server = await Postrider.start({ timeScale: 20_000 });
  const close = async () => {
    await server.remove();
    await receivers.close();
  };
  try {
    return { server, receivers, close, ...(await fill(server, receivers, timeScale)) };
  } catch (error) {
    await close();
    throw error;
  }
}

async function fill(server, receivers, timeScale) {
  const subscriptions = {};
  const subscribe = async (name, more = {}) => {
    subscriptions[name] = await server.post('subscriptions', { url: `${receivers.base}/${name}`, types: ['task.*'], ...more });
  };
  await subscribe('healthy', { types: ['*'] });
  await subscribe('flaky', { filter: { all: [{ field: 'data.status', op: 'changed' }, { field: 'data.priority', op: 'gte', value: 1 }] } });
  await subscribe('broken', { auth_token: 'a-very-secret-token' });
  await subscribe('hostile', { types: ['task.created'] });
  await subscribe('gone', { types: ['project.updated'] });
  await send(server, 0, 120);
  await server.until('ledger', (ledger) => ledger.dead >= 60, 'dead letters', 40);
  await server.down();

  await server.up({ timeScale });
  await subscribe('slow', { types: ['task.created'], format: 'cloudevents' });
  await subscribe('hangs', { types: ['project.updated'], rate_limit: 5 });
  await send(server, 1000, 80);
  const destinations = await server.get('destinations?limit=100');
  const by = (name) => destinations.data.find((row) => row.url.endsWith(`/${name}`));
  await server.post('tenants', { id: 'acme', name: 'Acme Ltd' });
  await server.post('keys', { name: 'Acme backend', tenant: 'acme', scopes: ['ingest', 'read'] });
  await server.post('keys', { name: 'Reporting', scopes: ['read'] });
  await server.post('replays', { destination: by('hostile').id, per_second: 1 });
  await server.until('replays?limit=1', (list) => list.data[0].done > 0, 'a replay that has begun');
  await server.until(`deliveries?state=waiting&limit=1&destination=${by('broken').id}`, (list) => list.data.length > 0, 'a retry that waits');
  return { subscriptions, destination: (name) => by(name).id };
}

/** What only some tests need: a described subscription with a policy, a catalogue, a flag, an erasure, another tenant's failures. */
export async function enrich({ server, receivers }) {
  const described = await server.post('subscriptions', {
    url: `${receivers.base}/healthy?warehouse`,
    types: ['order.*'],
    name: 'Warehouse',
    uid: 'warehouse-7',
    description: 'Orders for the warehouse in Lyon. Ask Ada before you change it.',
    metadata: { team: 'logistics', region: 'eu-west' },
    rate_limit: 20,
    policy: { retry: { unit_seconds: 30, max: 8 }, attempt: { deadline_seconds: 10 }, recovery: { mode: 'drain', dead: 'replay' } },
  });
  await server.post('event-types', {
    name: 'person.updated',
    description: 'A person has changed',
    schema: { type: 'object', required: ['name'], properties: { name: { type: 'string' }, age: { type: 'integer', minimum: 0 } } },
    example: { name: 'Ada', age: 36 },
  });
  await server.post('event-types', { name: 'person.renamed', description: 'Use person.updated instead', deprecated: true });
  await server.post('event-types', { name: 'server.notice', description: 'A notice for everybody', scope: 'server' });
  await server.call('PATCH', 'catalogue', { misfits: 'flag' });
  await server.post('events', { id: 'person-7-flagged', type: 'person.updated', object: 'person-7', data: { name: 'Ada', age: 'unknown' } });
  await server.post('events', { id: 'person-8-erased', type: 'person.updated', object: 'person-8', data: { name: 'Grace' } });
  await server.post('erasures', { event: 'person-8-erased' });
  await server.until('events/person-8-erased', (event) => event.erased_at !== null, 'the erasure');
  const acme = { 'postrider-tenant': 'acme' };
  await server.call('POST', 'subscriptions', { url: `${receivers.base}/gone?acme`, types: ['*'] }, acme);
  await server.call('POST', 'events', { type: 'invoice.paid', data: { n: 1 } }, acme);
  return { described };
}
