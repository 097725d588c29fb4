// The policy of a subscription in plain words, and where each value comes from.
import { duration } from './clock.svelte';
import { spanSeconds } from './durations';
import { plural } from './format';
import type { Destination, Policy, Subscription } from './types';

export interface PolicyLine {
  name: string;
  /** What holds. */
  value: string;
  /** Whose value it is: the server's, this subscription's, or that of another subscription with the same URL. */
  from: 'server' | 'this' | 'other';
  /** The other subscription. */
  other: string | null;
  /** What this subscription asked for, where something else holds. */
  asked: string | null;
}

const seconds = (n: number) => duration(n * 1000);
export const MODES = { slots: 'at its slots', drain: 'at once, slowly at first' } as const;
export const DEAD = { keep: 'kept', replay: 'replayed when the destination is enabled again' } as const;

type Limits = Policy['subscription_limits'];

/** Whether the operator's limits cut what the subscription asked for. They hold for the numbers as they were given. */
function cuts(own: Subscription['policy'], limits: Limits | null, server: Policy | null) {
  const { unit_seconds: unit, max } = own.retry ?? {};
  const isTooLong = limits !== null && server !== null && (unit ?? max) != null
    && spanSeconds(unit ?? server.retry.unit_seconds, max ?? server.retry.max) > limits.retry_span_seconds_max;
  return {
    unit: limits !== null && unit != null && unit < limits.retry_unit_seconds_min,
    max: (limits !== null && max != null && max > limits.retry_max) || (isTooLong && max != null),
    deadline: limits !== null && (own.attempt.deadline_seconds ?? 0) > limits.attempt_deadline_seconds_max,
    age: limits !== null && (own.recovery.dead_max_age_seconds ?? 0) > limits.dead_max_age_seconds_max,
  };
}

/** A value that belongs to the subscription itself. */
function line(name: string, value: string, own: string | null, isCut: boolean): PolicyLine {
  return { name, value, from: own === null ? 'server' : 'this', other: null, asked: isCut ? own : null };
}

/** A value that subscriptions with the same URL share. */
function shared(name: string, value: string, id: string, found: { from: string; subscription_id?: string | null }, own: string | null): PolicyLine {
  const isOwn = found.subscription_id === id;
  const from = found.from === 'server' ? 'server' : isOwn ? 'this' : 'other';
  const other = from === 'other' ? (found.subscription_id ?? null) : null;
  return { name, value, from, other, asked: from === 'this' || own === value ? null : own };
}

export function policyLines(subscription: Subscription, destination: Destination | null, server: Policy | null): PolicyLine[] {
  const { id, policy: own, effective_policy: held } = subscription;
  const retry = held.retry!;
  const { unit_seconds: unit = null, max = null } = own.retry ?? {};
  const cut = cuts(own, server?.subscription_limits ?? null, server);
  const last = retry.measured_from === 'first_attempt' ? retry.offsets_ms.at(-1) : undefined;
  const lines = [
    line('Retries', `${plural(retry.max, 'retry', 'retries')}${last ? `, the last one ${duration(last)} after the first attempt` : ''}`, max === null ? null : plural(max, 'retry', 'retries'), cut.max),
    line('Retry unit', `${seconds(retry.unit_seconds)}: retry n falls due (2ⁿ − 1) units after the first attempt`, unit === null ? null : seconds(unit), cut.unit),
    line('Deadline of an attempt', seconds(held.attempt_deadline_seconds), own.attempt.deadline_seconds == null ? null : seconds(own.attempt.deadline_seconds), cut.deadline),
    line('What died of an outage is', DEAD[held.dead], own.recovery.dead ? DEAD[own.recovery.dead] : null, false),
    line('Replayed only where accepted in the last', seconds(held.dead_max_age_seconds), own.recovery.dead_max_age_seconds == null ? null : seconds(own.recovery.dead_max_age_seconds), cut.age),
  ];
  if (!destination) return lines;
  const { mode, ...from } = destination.recovery;
  lines.splice(3, 0, shared('After an outage, what waits is sent', MODES[mode], id, from, own.recovery.mode ? MODES[own.recovery.mode] : null));
  const rate = destination.rate_limit;
  const wanted = subscription.rate_limit == null ? null : `at most ${subscription.rate_limit} a second`;
  lines.push(rate
    ? shared('Requests to the URL', `at most ${rate.per_second} a second`, id, rate, wanted)
    : { name: 'Requests to the URL', value: 'no limit of their own', from: 'server', other: null, asked: null });
  return lines;
}
