import type { ProblemError } from '@postrider/client';

/** A refusal of the server, as its problem document says it. */
export class Problem extends Error {
  readonly status: number;
  readonly code: string;
  readonly title: string;
  readonly field: string | null;
  readonly existingId: string | null;
  /** The place of the fault in a payload or schema, as a JSON pointer. */
  readonly pointer: string | null;

  constructor(status: number, said: Partial<Pick<ProblemError, 'code' | 'title' | 'detail' | 'field' | 'existingId' | 'pointer'>>) {
    super(said.detail ?? said.title ?? `the server answered ${status}`);
    this.name = 'Problem';
    this.status = status;
    this.code = said.code ?? 'unknown';
    this.title = said.title ?? `Status ${status}`;
    this.field = said.field ?? null;
    this.existingId = said.existingId ?? null;
    this.pointer = said.pointer ?? null;
  }
}

/** The server did not answer an unsafe call, also not when it was repeated. */
export class Away extends Error {
  constructor() {
    super('The server does not answer. Whether it did this is unknown: look before you try again.');
    this.name = 'Away';
  }
}

const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

export function words(error: unknown): string {
  if (error instanceof Problem) {
    const text = capital(error.message);
    return error.field ? `${text} (${error.field})` : text;
  }
  return error instanceof Error ? error.message : String(error);
}

/** Why a form could not be saved, and the field that it is about. */
export interface Fault {
  text: string;
  /** The same without the field's name, for the place beside the field. */
  brief: string;
  field: string | null;
  /** The record that is in the way. */
  existing: string | null;
}

export function faultOf(error: unknown): Fault {
  const text = words(error);
  if (!(error instanceof Problem)) return { text, brief: text, field: null, existing: null };
  const place = error.pointer ? `, at ${error.pointer}` : '';
  return { text: text + place, brief: capital(error.message) + place, field: error.field, existing: error.existingId };
}

/** Whether a fault is about a field, or about something inside it. */
export function isAt(fault: Fault | null, name: string): boolean {
  const field = fault?.field;
  return field === name || Boolean(field?.startsWith(`${name}.`) || field?.startsWith(`${name}[`));
}

export const isAbort = (error: unknown) => error instanceof DOMException && error.name === 'AbortError';
