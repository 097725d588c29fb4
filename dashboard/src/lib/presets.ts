// The schedules to compare with, as `postrider simulate` has them: when each retry is due, in milliseconds after
// the first attempt.

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

const sums = (delays: number[]) => delays.map((_, n) => delays.slice(0, n + 1).reduce((sum, delay) => sum + delay, 0));

function doubling(first: number, until: number): number[] {
  const delays: number[] = [];
  let total = 0;
  for (let delay = first; total + delay <= until; delay *= 2) {
    delays.push(delay);
    total += delay;
  }
  // The last one makes up the rest.
  if (total < until) delays.push(until - total);
  return delays;
}

export const PRESETS = {
  svix: sums([5000, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, 10 * HOUR]),
  /** Stripe does not publish its intervals: here they double from five minutes for three days. */
  stripe: sums(doubling(5 * MINUTE, 72 * HOUR)),
};

/** When each retry of ours is due: retry n after (2^n − 1) units. */
export const offsets = (unitMs: number, retries: number) => Array.from({ length: retries }, (_, n) => (2 ** (n + 1) - 1) * unitMs);
