import type { ProblemError } from '@postrider/client';

/** A refusal of the server, as its problem document says it. */
export class Problem extends Error {
  readonly status: number;
  readonly code: string;
  readonly title: string;
  readonly field: string | null;
  readonly existingId: string | null;

  constructor(status: number, said: Partial<Pick<ProblemError, 'code' | 'title' | 'detail' | 'field' | 'existingId'>>) {
    super(said.detail ?? said.title ?? `the server answered ${status}`);
    this.name = 'Problem';
    this.status = status;
    this.code = said.code ?? 'unknown';
    this.title = said.title ?? `Status ${status}`;
    this.field = said.field ?? null;
    this.existingId = said.existingId ?? null;
  }
}

/** The server did not answer an unsafe call, also not when it was repeated. */
export class Away extends Error {
  constructor() {
    super('The server does not answer. Whether it did this is unknown: look before you try again.');
    this.name = 'Away';
  }
}

export function words(error: unknown): string {
  if (error instanceof Problem) {
    const text = error.message.charAt(0).toUpperCase() + error.message.slice(1);
    return error.field ? `${text} (${error.field})` : text;
  }
  return error instanceof Error ? error.message : String(error);
}

export const isAbort = (error: unknown) => error instanceof DOMException && error.name === 'AbortError';
