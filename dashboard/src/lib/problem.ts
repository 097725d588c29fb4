import type { ProblemBody } from './types';

/** A refusal of the server, as its problem document says it. */
export class Problem extends Error {
  readonly status: number;
  readonly code: string;
  readonly title: string;
  readonly field: string | null;
  readonly existingId: string | null;

  constructor(status: number, body: Partial<ProblemBody>) {
    super(body.detail ?? body.title ?? `the server answered ${status}`);
    this.name = 'Problem';
    this.status = status;
    this.code = body.code ?? 'unknown';
    this.title = body.title ?? `Status ${status}`;
    this.field = body.field ?? null;
    this.existingId = body.existing_id ?? null;
  }

  static async of(response: Response): Promise<Problem> {
    let body: Partial<ProblemBody> = {};
    if (response.headers.get('content-type')?.includes('json')) {
      body = await response.json().catch(() => ({}));
    }
    return new Problem(response.status, body);
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
