// One clock for all relative times on the page.
import { look } from './theme.svelte';

class Clock {
  now = $state(Date.now());

  constructor() {
    setInterval(() => {
      if (!document.hidden) this.now = Date.now();
    }, 1000);
    document.addEventListener('visibilitychange', () => (this.now = Date.now()));
  }
}

export const clock = new Clock();

const UNITS: [string, number][] = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['min', 60_000],
  ['s', 1000],
];

/** A duration in at most two units, such as `3 h 12 min`. */
export function duration(ms: number): string {
  const whole = Math.abs(ms);
  if (whole < 1000) return `${Math.round(whole)} ms`;
  if (whole < 10_000) return `${(whole / 1000).toFixed(1)} s`;
  const index = UNITS.findIndex(([, size]) => whole >= size);
  const [unit, size] = UNITS[index] ?? UNITS[3]!;
  const count = Math.floor(whole / size);
  const next = UNITS[index + 1];
  const rest = next && count < 10 ? Math.floor((whole - count * size) / next[1]) : 0;
  return next && rest > 0 ? `${count} ${unit} ${rest} ${next[0]}` : `${count} ${unit}`;
}

/** `3 min ago`, `in 2 h`, `now`. */
export function relative(at: string | number, now: number): string {
  const ms = (typeof at === 'number' ? at : Date.parse(at)) - now;
  if (Math.abs(ms) < 1000) return 'now';
  const text = Math.abs(ms) < 10_000 ? `${Math.floor(Math.abs(ms) / 1000)} s` : duration(ms);
  return ms < 0 ? `${text} ago` : `in ${text}`;
}

const parts = (utc: boolean, more: Intl.DateTimeFormatOptions) =>
  new Intl.DateTimeFormat('en-GB', {
    ...more,
    hour12: false,
    ...(utc && { timeZone: 'UTC' }),
  });
const DAY = { year: 'numeric', month: 'short', day: '2-digit' } as const;
const TIME = { hour: '2-digit', minute: '2-digit', second: '2-digit' } as const;

/** The exact time with its zone, as the viewer wants it. */
export function exact(at: string | number): string {
  const date = new Date(at);
  if (look.utc) return date.toISOString().replace('T', ' ').replace('Z', ' UTC');
  return parts(false, { ...DAY, ...TIME, fractionalSecondDigits: 3, timeZoneName: 'short' }).format(date);
}

/** The time of day, for axes and dense rows. */
export function timeOfDay(at: string | number, seconds = true): string {
  return parts(look.utc, seconds ? TIME : { hour: '2-digit', minute: '2-digit' }).format(new Date(at));
}
