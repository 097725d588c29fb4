// Filters as the API takes them, and as the builder edits them.

export type Filter = Group | Condition;
export interface Group {
  all?: Filter[];
  any?: Filter[];
}
export interface Condition {
  field: string;
  op: string;
  value?: unknown;
  as?: 'time';
}

export const OPS: Record<string, string> = {
  eq: 'is',
  ne: 'is not',
  gt: 'is more than',
  gte: 'is at least',
  lt: 'is less than',
  lte: 'is at most',
  contains: 'contains',
  not_contains: 'does not contain',
  contains_only: 'contains only',
  changed: 'changed',
  exists: 'exists',
};
export const NO_VALUE = new Set(['changed', 'exists']);

/** The comparisons that `as: "time"` goes with. */
const ORDERED = new Set(['gt', 'gte', 'lt', 'lte']);

/** The same condition with another comparison; what does not fit that one is dropped. */
export function withOp(item: Condition, op: string): Condition {
  if (NO_VALUE.has(op)) return { field: item.field, op };
  const changed = { field: item.field, op, value: item.value ?? '' };
  return item.as !== undefined && ORDERED.has(op) ? { ...changed, as: item.as } : changed;
}

/** Why a text is no filter that the builder can show, in words; the filter where it is one. The server says the rest. */
export function filterOf(text: string): { filter: Filter | null } | { fault: string } {
  if (!text.trim()) return { filter: null };
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return { fault: `This is not JSON: ${(error as Error).message}` };
  }
  const fault = shapeFault(value, 'filter');
  return fault === null ? { filter: value as Filter } : { fault };
}

function shapeFault(value: unknown, place: string): string | null {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return `${place} must be an object`;
  for (const kind of ['all', 'any'] as const) {
    if (!(kind in value)) continue;
    const items = (value as Record<string, unknown>)[kind];
    if (!Array.isArray(items)) return `${place}.${kind} must be a list`;
    return items.map((item, n) => shapeFault(item, `${place}.${kind}[${n}]`)).find((fault) => fault !== null) ?? null;
  }
  const { field, op } = value as Record<string, unknown>;
  if (typeof field !== 'string') return `${place}.field must be a text`;
  return typeof op === 'string' ? null : `${place}.op must be a text`;
}

export const isGroup = (filter: Filter): filter is Group => 'all' in filter || 'any' in filter;
export const itemsOf = (group: Group): Filter[] => group.all ?? group.any ?? [];

/** A value as somebody types it: JSON where it is JSON, else text. */
export function valueOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

export function textOfValue(value: unknown): string {
  if (value === undefined) return '';
  // A text that reads like a number keeps its quotes, so that it stays a text.
  if (typeof value === 'string' && valueOf(value) === value) return value;
  return JSON.stringify(value);
}

export function describe(filter: Filter): string {
  if (isGroup(filter)) {
    const words = itemsOf(filter).map((one) => (isGroup(one) ? `(${describe(one)})` : describe(one)));
    return words.join(filter.all ? ' and ' : ' or ');
  }
  const value = NO_VALUE.has(filter.op) ? '' : ` ${JSON.stringify(filter.value)}`;
  return `${filter.field} ${OPS[filter.op] ?? filter.op}${value}`;
}

/** The conditions of a filter, each with its place. */
export function conditionsOf(filter: Filter): Condition[] {
  return isGroup(filter) ? itemsOf(filter).flatMap(conditionsOf) : [filter];
}

/** Whether one of a subscription's types covers a type: `*`, `task.*` at any depth, or the type itself. */
export function typeMatches(patterns: string[], type: string): boolean {
  return patterns.some((pattern) => pattern === '*' || pattern === type || (pattern.endsWith('.*') && type.startsWith(pattern.slice(0, -1))));
}

/** The condition at a place as the server names it, such as `filter.any[0].all[1]`. */
export function conditionAt(filter: Filter | null, place: string): Condition | null {
  let found: Filter | null | undefined = filter;
  for (const [, kind, n] of place.matchAll(/\.(all|any)\[(\d+)\]/g)) {
    found = found && isGroup(found) ? found[kind as 'all' | 'any']?.[Number(n)] : null;
  }
  return found && !isGroup(found) ? found : null;
}
