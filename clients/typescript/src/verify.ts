/**
 * verify(): is this webhook from Postrider, unchanged and fresh? For receivers.
 *
 * Signatures are those of Standard Webhooks. Only Web Crypto is used, so this works in Node 18 and newer, in
 * Deno, in workers and in browsers. Give it the raw body: the signature covers its exact bytes, and JSON that
 * was parsed and written again has others.
 */
import { webCrypto } from "#crypto";

/** Why a webhook is not to be trusted. */
export type VerificationFailure =
  | "missing_header"
  | "malformed_header"
  | "too_old"
  | "too_new"
  | "no_matching_signature";

/** The webhook is not to be trusted. Holds neither the secret nor the expected signature. */
export class VerificationError extends Error {
  override readonly name = "VerificationError";
  readonly code: VerificationFailure;

  constructor(code: VerificationFailure, message: string) {
    super(message);
    this.code = code;
  }
}

/** Headers in any of the usual forms: `Headers`, a record such as Node's `req.headers`, or pairs. */
export type HeaderSource =
  | { get(name: string): string | null }
  | Record<string, string | string[] | undefined>
  | Iterable<readonly [string, string]>;

/** How to verify. */
export interface VerifyOptions {
  /** How far the sender's clock may be from ours, either way. 300 where it is left out. */
  toleranceSeconds?: number;
  /** The time to compare with. Now where it is left out. */
  now?: Date;
}

/** What a webhook that was verified says of itself. */
export interface Verified {
  /** `webhook-id`: the same for each attempt of a delivery. Use it to recognise a repeat. */
  id: string;
  /** When this attempt was made. */
  timestamp: Date;
}

const TOLERANCE_SECONDS = 300;
const SIGNATURES_MAX = 32;
const encoder = new TextEncoder();

/**
 * Resolves where one of the secrets (`whsec_…`, or `whpk_…` for ed25519) has signed exactly this body at about
 * this time, and rejects with a `VerificationError` otherwise. Give both secrets while one replaces the other.
 */
export async function verify(
  body: string | Uint8Array | ArrayBuffer,
  headers: HeaderSource,
  secrets: string | readonly string[],
  options: VerifyOptions = {},
): Promise<Verified> {
  const read = reader(headers);
  const id = header(read, "webhook-id");
  const timestamp = header(read, "webhook-timestamp");
  const signatures = header(read, "webhook-signature");
  // With a dot in the id, the same signed text could be read as another id, time and body.
  if (!/^[\x21-\x2d\x2f-\x7e]+$/.test(id)) throw malformed("webhook-id");
  const sentSeconds = checkTime(timestamp, options);
  const list = signatures.split(" ");
  const isList = list.length <= SIGNATURES_MAX && list.every((one) => /^[\x21-\x7e]*,[\x21-\x7e]*$/.test(one));
  if (!isList) throw malformed("webhook-signature");

  const bytes = rawBytes(body);
  const head = encoder.encode(`${id}.${timestamp}.`);
  const message = new Uint8Array(head.length + bytes.length);
  message.set(head);
  message.set(bytes, head.length);

  const keys = await Promise.all((typeof secrets === "string" ? [secrets] : secrets).map(importKey));
  for (const { key, algorithm, version, length } of keys) {
    for (const one of list) {
      if (!one.startsWith(version)) continue;
      const signature = base64(one.slice(version.length));
      if (signature?.length !== length) continue;
      // Web Crypto compares an HMAC in constant time.
      if (await webCrypto.subtle.verify(algorithm, key, signature, message)) {
        return { id, timestamp: new Date(sentSeconds * 1000) };
      }
    }
  }
  throw new VerificationError("no_matching_signature", "no signature of the webhook was made with a known secret");
}

function rawBytes(body: unknown): Uint8Array {
  if (typeof body === "string") return encoder.encode(body);
  if (body instanceof Uint8Array) return body;
  if (body instanceof ArrayBuffer) return new Uint8Array(body);
  throw new TypeError("verify needs the raw body, as text or bytes: is a JSON parser in front of it?");
}

interface VerifyKey {
  key: CryptoKey;
  algorithm: "HMAC" | "Ed25519";
  version: "v1," | "v1a,";
  length: 32 | 64;
}

async function importKey(secret: string): Promise<VerifyKey> {
  const text = secret.trim();
  if (text.startsWith("whsec_")) {
    const bytes = base64(padded(text.slice("whsec_".length)));
    if (bytes === undefined || bytes.length < 24 || bytes.length > 64) {
      throw new TypeError("a whsec_ secret holds 24 to 64 bytes, in base64");
    }
    const key = await webCrypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
    return { key, algorithm: "HMAC", version: "v1,", length: 32 };
  }
  if (text.startsWith("whpk_")) {
    const bytes = base64(padded(text.slice("whpk_".length)));
    if (bytes?.length !== 32) throw new TypeError("a whpk_ key holds 32 bytes, in base64");
    const key = await webCrypto.subtle.importKey("raw", bytes, { name: "Ed25519" }, false, ["verify"]);
    return { key, algorithm: "Ed25519", version: "v1a,", length: 64 };
  }
  if (text.startsWith("whsk_")) {
    throw new TypeError("a whsk_ secret signs; a receiver needs the subscription's public_key (whpk_…)");
  }
  throw new TypeError("a secret begins with whsec_ (HMAC-SHA256) or whpk_ (ed25519)");
}

/** What finds all values of a header. */
function reader(source: HeaderSource): (name: string) => string[] {
  if ("get" in source && typeof source.get === "function") {
    const map = source as { get(name: string): string | null | undefined };
    return (name) => [map.get(name)].flatMap((value) => (typeof value === "string" ? [value] : []));
  }
  // Read once: an iterator can be read only once.
  const pairs: (readonly [string, unknown])[] =
    Symbol.iterator in source ? [...(source as Iterable<readonly [string, string]>)] : Object.entries(source);
  return (name) =>
    pairs.filter(([key]) => key.toLowerCase() === name).flatMap(([, value]) => value as string | string[] | undefined ?? []);
}

function header(read: (name: string) => string[], name: string): string {
  const [value, another] = read(name);
  if (another !== undefined) throw malformed(name);
  if (value === undefined || value === "") {
    throw new VerificationError("missing_header", `the header ${name} is missing`);
  }
  return value;
}

function checkTime(timestamp: string, options: VerifyOptions): number {
  if (!/^\d{1,15}$/.test(timestamp)) throw malformed("webhook-timestamp");
  const sent = Number(timestamp);
  const now = Math.floor((options.now ?? new Date()).getTime() / 1000);
  const tolerance = options.toleranceSeconds ?? TOLERANCE_SECONDS;
  // Written so that a tolerance or a time that is not a number refuses.
  if (!(now - sent <= tolerance)) throw new VerificationError("too_old", "the webhook was signed too long ago");
  if (!(sent - now <= tolerance)) throw new VerificationError("too_new", "the webhook was signed in the future");
  return sent;
}

function malformed(name: string): VerificationError {
  return new VerificationError("malformed_header", `the header ${name} is malformed`);
}

/** Adds the padding that people leave out when they copy a secret. */
function padded(text: string): string {
  return text.replace(/=+$/, "").padEnd(Math.ceil(text.replace(/=+$/, "").length / 4) * 4, "=");
}

/** The bytes of canonical base64; undefined for everything else, which atob would partly accept. */
function base64(text: string): Uint8Array<ArrayBuffer> | undefined {
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(text) || text.length % 4 !== 0) return undefined;
  let binary: string;
  try {
    binary = atob(text);
  } catch {
    return undefined;
  }
  if (btoa(binary) !== text) return undefined;
  return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}
