// JSON whose numbers keep the digits that were sent, where the browser can do that.

interface RawJson {
  rawJSON?: (text: string) => unknown;
  isRawJSON?: (value: unknown) => boolean;
}
const raw = JSON as unknown as RawJson;

export const isRaw = (value: unknown): value is { rawJSON: string } => raw.isRawJSON?.(value) ?? false;

export function parseExactly(text: string): unknown {
  type Reviver = (key: string, value: unknown, context?: { source?: string }) => unknown;
  const revive: Reviver = (_, value, context) => {
    const source = context?.source;
    if (typeof value !== 'number' || !source || String(value) === source || !raw.rawJSON) return value;
    return raw.rawJSON(source);
  };
  return JSON.parse(text, revive as (key: string, value: unknown) => unknown);
}

export type Kind = 'object' | 'array' | 'string' | 'number' | 'boolean' | 'null';

export function kindOf(value: unknown): Kind {
  if (value === null || value === undefined) return 'null';
  if (isRaw(value)) return 'number';
  if (Array.isArray(value)) return 'array';
  return typeof value as Kind;
}

export const textOf = (value: unknown) => (value === undefined ? 'absent' : (JSON.stringify(value) ?? 'null'));

export const childPath = (path: string, key: string | number) =>
  typeof key === 'number' ? `${path}[${key}]` : path ? `${path}.${key}` : key;

export interface TreeLine {
  path: string;
  depth: number;
  key: string | null;
  text: string;
  kind: Kind;
  size: number;
  isOpen: boolean;
  isEnd: boolean;
}

/** The lines of a tree, in which the paths of `folded` are closed. */
export function linesOf(value: unknown, folded: ReadonlySet<string>): TreeLine[] {
  const lines: TreeLine[] = [];
  const visit = (one: unknown, key: string | null, path: string, depth: number) => {
    const kind = kindOf(one);
    const base = { path, depth, key, kind, isEnd: false };
    if (kind !== 'object' && kind !== 'array') {
      lines.push({ ...base, text: textOf(one), size: 0, isOpen: false });
      return;
    }
    const entries = kind === 'array' ? (one as unknown[]).map((item, n) => [n, item] as const) : Object.entries(one as object);
    const isOpen = entries.length > 0 && !folded.has(path);
    const [begin, end] = kind === 'array' ? ['[', ']'] : ['{', '}'];
    lines.push({ ...base, text: isOpen ? begin : entries.length ? `${begin} … ${end}` : begin + end, size: entries.length, isOpen });
    if (!isOpen) return;
    for (const [name, item] of entries) visit(item, String(name), childPath(path, name), depth + 1);
    lines.push({ ...base, key: null, text: end, size: 0, isOpen: false, isEnd: true });
  };
  visit(value, null, '', 0);
  return lines;
}

export interface Change {
  path: string;
  kind: 'added' | 'removed' | 'changed';
  old: unknown;
  now: unknown;
}

/** What became of `old` in `now`, leaf by leaf. */
export function difference(old: unknown, now: unknown, path = ''): Change[] {
  const [was, is] = [kindOf(old), kindOf(now)];
  if (was === is && (was === 'object' || was === 'array')) {
    const [a, b] = [old as Record<string, unknown>, now as Record<string, unknown>];
    const keys = [...new Set([...Object.keys(a), ...Object.keys(b)])];
    return keys.flatMap((key) => {
      const place = childPath(path, was === 'array' ? Number(key) : key);
      if (!(key in a)) return [{ path: place, kind: 'added' as const, old: undefined, now: b[key] }];
      if (!(key in b)) return [{ path: place, kind: 'removed' as const, old: a[key], now: undefined }];
      return difference(a[key], b[key], place);
    });
  }
  return textOf(old) === textOf(now) ? [] : [{ path, kind: 'changed', old, now }];
}
