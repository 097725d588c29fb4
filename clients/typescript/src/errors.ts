/**
 * The errors of this client. None of them holds the API key, a signing secret or a request body, neither in its
 * message nor in a property, so that they can be logged as they are.
 */
import type { Problem } from "./types.js";

/** Any error of this client. */
export class PostriderError extends Error {
  override readonly name: string = "PostriderError";
}

/** The server refused the request and said why, as a problem document. */
export class ProblemError extends PostriderError {
  override readonly name = "ProblemError";
  /** The HTTP status. */
  readonly status: number;
  /** The stable name of the problem, such as `invalid_field`. */
  readonly code: string;
  /** The problem in a few words; the same for every occurrence. */
  readonly title: string;
  /** What is wrong this time, and what to do. */
  readonly detail: string;
  /** The offending field, such as `filter.all[2].op`; null where it is no field. */
  readonly field: string | null;
  /** What exists already, where that is the problem. */
  readonly existingId: string | null;
  /** The place of the fault in a payload or schema, as a JSON pointer; null where there is none. */
  readonly pointer: string | null;
  /** What the server's `Retry-After` says; null where it says nothing. */
  readonly retryAfterSeconds: number | null;
  /** How many times the request was sent. */
  readonly attempts: number;

  constructor(problem: Partial<Problem> & { status: number }, retryAfterSeconds: number | null, attempts: number) {
    const code = problem.code ?? "unknown";
    const detail = problem.detail ?? "the answer is not a problem document: check the url of the server and what is in front of it";
    const place = problem.field ? ` (${problem.field})` : "";
    super(`${problem.status} ${code}${place}: ${detail}`);
    this.status = problem.status;
    this.code = code;
    this.title = problem.title ?? `status ${problem.status}`;
    this.detail = detail;
    this.field = problem.field ?? null;
    this.existingId = problem.existing_id ?? null;
    this.pointer = problem.pointer ?? null;
    this.retryAfterSeconds = retryAfterSeconds;
    this.attempts = attempts;
  }
}

/** No usable answer arrived: no connection, a connection that broke, or a time limit. */
export class ConnectionError extends PostriderError {
  override readonly name: string = "ConnectionError";
  /** How many times the request was sent. */
  readonly attempts: number;

  constructor(message: string, attempts: number) {
    super(message);
    this.attempts = attempts;
  }
}

/** No answer arrived within the time limit. */
export class TimeoutError extends ConnectionError {
  override readonly name = "TimeoutError";
}
