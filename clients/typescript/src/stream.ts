/** `GET /v1/stream`: server-sent events, read as they arrive. */
import { ConnectionError, TimeoutError } from "./errors.js";
import type { Transport } from "./transport.js";
import type { StreamEvent } from "./types.js";

/** How to follow. */
export interface StreamOptions {
  /** Ends the stream. */
  signal?: AbortSignal;
  /** The longest silence. The server sends a sign of life every 15 s. 60 s where it is left out. */
  silenceMaxMs?: number;
  /** Of the attempts only those that failed, or were delivered. */
  outcome?: "failed" | "delivered";
  /** Of this destination only. */
  destination?: string;
  /** `no`: attempts without the body of the receiver's answer. */
  body?: "no";
  /** Called when the stream is open: what happens from now on is told. */
  onOpen?: () => void;
}

/** Yields what happens from now on. Ends when the server ends the stream or `signal` aborts. */
export async function* follow(transport: Transport, options: StreamOptions = {}): AsyncGenerator<StreamEvent> {
  const stop = new AbortController();
  const onAbort = () => stop.abort();
  options.signal?.addEventListener("abort", onAbort, { once: true });
  if (options.signal?.aborted) stop.abort();
  const query = { outcome: options.outcome, destination: options.destination, body: options.body };
  const silenceMaxMs = options.silenceMaxMs ?? 60_000;
  let silent = false;
  const alarm = () => setTimeout(() => { silent = true; stop.abort(); }, silenceMaxMs);
  let timer = alarm();
  try {
    const response = await transport.open({ method: "GET", path: "/v1/stream", query }, stop.signal);
    options.onOpen?.();
    const reader = (response.body ?? new ReadableStream<Uint8Array>()).getReader();
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = alarm();
      rest += decoder.decode(value, { stream: true });
      // An event ends with an empty line. The server ends its lines with \n alone.
      const blocks = rest.split("\n\n");
      rest = blocks.pop() ?? "";
      for (const block of blocks) {
        const event = parse(block);
        if (event !== undefined) yield event;
      }
    }
  } catch (error) {
    if (silent) throw new TimeoutError(`GET /v1/stream: silent for ${silenceMaxMs} ms`, 1);
    if (options.signal?.aborted) return;
    if (error instanceof TypeError) throw new ConnectionError(`GET /v1/stream: the connection broke`, 1);
    throw error;
  } finally {
    clearTimeout(timer);
    options.signal?.removeEventListener("abort", onAbort);
    stop.abort();
  }
}

/** One event of the stream; undefined for a comment. */
function parse(block: string): StreamEvent | undefined {
  let event = "";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) event = line.slice("event:".length).trim();
    if (line.startsWith("data:")) data += line.slice("data:".length).trim();
  }
  if (event === "" || data === "") return undefined;
  return { event, ...(JSON.parse(data) as object) } as StreamEvent;
}
