// The retry slots of a delivery: retry n is due (2^n − 1) units after the first attempt.
import type { Attempt, DeliveryDetail } from './types';

export const UNIT_MS = 84_800;
export const RETRIES = 11;

export const offset = (n: number, unit = UNIT_MS) => (2 ** n - 1) * unit;

export type SlotState = 'delivered' | 'failed' | 'spent' | 'next' | 'ahead' | 'unneeded';

export interface Slot {
  n: number;
  at: number;
  state: SlotState;
  attempt: Attempt | null;
}

export interface Schedule {
  /** When its clock started. */
  start: number;
  /** Where the unit is from. `unknown`: the server has another one, and no retry shows it yet. */
  source: 'default' | 'inferred' | 'unknown';
  slots: Slot[];
  /** The attempts since the clock started. */
  attempts: Attempt[];
}

const NEAR = 0.02;

/**
 * `retry` is the number of the retry that comes next, where somebody knows it. The API has it only in
 * the words of explain (`retryOf`), until a delivery shows its schedule.
 */
export function scheduleOf(delivery: DeliveryDetail, now: number, retry: number | null = null): Schedule {
  const log = delivery.attempt_log;
  // A replay starts a new schedule, which begins with a first attempt.
  const first = log.findLastIndex((attempt) => attempt.turn === 'first');
  const start = Date.parse(first >= 0 ? log[first]!.started_at : delivery.created_at);
  const attempts = first >= 0 ? log.slice(first) : log;
  const { unit, source } = unitOf(delivery, attempts, start, retry);
  if (source === 'unknown') return { start, source, slots: [], attempts };
  const slots = Array.from({ length: RETRIES }, (_, k): Slot => {
    const n = k + 1;
    const attempt = attempts.findLast((one) => one.retry === n) ?? null;
    return { n, at: start + offset(n, unit), state: 'ahead', attempt };
  });
  const next = delivery.next_attempt_at ? Date.parse(delivery.next_attempt_at) : null;
  const ended = delivery.finished_at ? Date.parse(delivery.finished_at) : null;
  let nextIsMarked = false;
  for (const slot of slots) {
    if (slot.attempt) slot.state = slot.attempt.outcome === 'delivered' ? 'delivered' : 'failed';
    else if (ended !== null) slot.state = slot.at < ended || delivery.state === 'dead' ? 'spent' : 'unneeded';
    else if (next !== null && !nextIsMarked && slot.at >= next - NEAR * (next - start) - 1) {
      slot.state = 'next';
      nextIsMarked = true;
    } else if (slot.at < (next ?? now)) slot.state = 'spent';
  }
  return { start, source, slots, attempts };
}

/** The number of the next retry in a sentence such as "waiting for retry 4 of 11, due …". */
export function retryOf(summary: string | undefined): number | null {
  const found = /\bretry (\d+) of \d+/.exec(summary ?? '');
  return found ? Number(found[1]) : null;
}

function unitOf(delivery: DeliveryDetail, attempts: Attempt[], start: number, retry: number | null) {
  const retries = attempts.filter((attempt) => attempt.retry);
  // A retry may be late, never early: the smallest unit that fits is the nearest.
  const units = retries.map((attempt) => (Date.parse(attempt.started_at) - start) / (2 ** attempt.retry! - 1));
  const smallest = units.length > 0 ? Math.min(...units) : null;
  if (smallest !== null) {
    return smallest >= UNIT_MS * (1 - NEAR) ? { unit: UNIT_MS, source: 'default' as const } : { unit: smallest, source: 'inferred' as const };
  }
  if (!delivery.next_attempt_at) return { unit: UNIT_MS, source: 'default' as const };
  const wait = Date.parse(delivery.next_attempt_at) - start;
  for (let n = 1; n <= RETRIES; n += 1) {
    if (Math.abs(wait - offset(n)) <= NEAR * offset(n)) return { unit: UNIT_MS, source: 'default' as const };
  }
  return retry && wait > 0
    ? { unit: wait / (2 ** retry - 1), source: 'inferred' as const }
    : { unit: UNIT_MS, source: 'unknown' as const };
}
