import type { Destination } from './types';

const RANK = { frozen: 0, disabled: 1, enabled: 2 } as const;

/** How near a destination is to being disabled, or frozen where it is disabled: 0 to 1. */
export function danger(row: Destination): number {
  const { thresholds: t } = row;
  const part = (count: { now: number; limit: number }) => (count.limit > 0 ? count.now / count.limit : 0);
  if (row.state === 'frozen') return 1;
  const byTime = Math.min(part(t.frozen_by_time.consecutive_failures), part(t.frozen_by_time.seconds_without_success));
  const frozen = Math.max(byTime, part(t.frozen_by_consecutive_failures));
  if (row.state === 'disabled') return Math.min(frozen, 1);
  const share = t.disabled_by_failure_share;
  const grace = Math.min(1, share.attempts / Math.max(share.grace, 1));
  const byShare = grace * Math.min(1, share.share / Math.max(share.limit, 0.0001));
  return Math.min(1, Math.max(byShare, part(t.disabled_by_consecutive_failures), frozen));
}

/** Sorts frozen first, then disabled, then by how near the next threshold is. */
export function worstFirst(a: Destination, b: Destination): number {
  return RANK[a.state] - RANK[b.state] || danger(b) - danger(a) || b.waiting - a.waiting || a.url.localeCompare(b.url);
}
