// Lengths of time as forms edit them, and the schedule that follows from a policy.

/** The units of a length of time, in seconds. */
export const UNITS: Record<string, number> = { s: 1, min: 60, h: 3600, d: 86_400 };

/** A length of time in the largest unit of which it is a whole number. */
export function fitting(seconds: number): { number: number; unit: string } {
  const whole = ['d', 'h', 'min'].find((unit) => seconds >= UNITS[unit]! && seconds % UNITS[unit]! === 0);
  return { number: seconds / UNITS[whole ?? 's']!, unit: whole ?? 's' };
}

/** The time from the first attempt to the last retry. */
export const spanSeconds = (unitSeconds: number, retries: number) => (2 ** retries - 1) * unitSeconds;
