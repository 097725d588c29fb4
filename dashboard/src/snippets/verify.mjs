import { createHmac, timingSafeEqual } from 'node:crypto';

// The secret of this subscription: whsec_…
const SECRET = Buffer.from(process.env.WEBHOOK_SECRET.replace(/^whsec_/, ''), 'base64');

/** headers by lower-case name, the body as it came (a Buffer or a string). */
export function verify(headers, body) {
  const sentAt = Number(headers['webhook-timestamp']);
  if (!(Math.abs(Date.now() / 1000 - sentAt) <= 300)) return false;
  const expected = createHmac('sha256', SECRET)
    .update(`${headers['webhook-id']}.${sentAt}.`)
    .update(body)
    .digest();
  // Several signatures during a rotation: one of them must fit.
  return headers['webhook-signature'].split(' ').some((signature) => {
    const [version, value] = signature.split(',');
    const given = Buffer.from(value ?? '', 'base64');
    return version === 'v1' && given.length === expected.length && timingSafeEqual(given, expected);
  });
}
