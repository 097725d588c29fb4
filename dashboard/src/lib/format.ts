const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

export const count = (n: number) => whole.format(n);

/** A number in little room: 1,234 → 1.2 k. */
export function short(n: number): string {
  if (Math.abs(n) < 10_000) return whole.format(n);
  if (Math.abs(n) < 1e6) return `${(n / 1e3).toFixed(n < 1e5 ? 1 : 0)} k`;
  return `${(n / 1e6).toFixed(n < 1e8 ? 1 : 0)} M`;
}

export function rate(perSecond: number): string {
  if (perSecond === 0) return '0';
  return perSecond < 10 ? perSecond.toFixed(1) : short(Math.round(perSecond));
}

/** A share as percent. Never rounds up to 100 or down to 0. */
export function percent(share: number): string {
  const value = share * 100;
  if (value > 99.9 && value < 100) return '> 99.9 %';
  if (value < 0.1 && value > 0) return '< 0.1 %';
  return `${value % 1 === 0 ? value : value.toFixed(1)} %`;
}

export function bytes(n: number): string {
  if (n < 1024) return `${n} B`;
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  const power = Math.min(Math.floor(Math.log2(n) / 10), 4);
  return `${(n / 2 ** (10 * power)).toFixed(1)} ${units[power - 1]}`;
}

/** The tail of an identifier, which tells neighbours apart. */
export const tail = (id: string) => (id.length > 14 ? `…${id.slice(-8)}` : id);

/** A URL without its scheme, for rows. */
export const bare = (url: string) => url.replace(/^https?:\/\//, '');

export const plural = (n: number, one: string, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** A text of the API as a sentence: with a capital and a full stop. */
export function sentence(text: string): string {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}

const REASONS: Record<string, string> = {
  exhausted: 'its last attempt failed',
  not_admitted: 'its last slot passed while the destination was disabled or frozen',
  asked: 'somebody cancelled it',
  subscription_deleted: 'its subscription was deleted',
};

/** Why a delivery is dead or cancelled, in words. */
export const reasonWords = (reason: string) => REASONS[reason] ?? reason.replaceAll('_', ' ');
