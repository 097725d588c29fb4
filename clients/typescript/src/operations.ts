/** The parts of the client for those who run things: catalogue, erasures, portal links, alerts, the server itself. */
import { type Api, type List, type ListOptions, hide, part } from "./api.js";
import type { CallOptions } from "./transport.js";
import type {
  AlertTarget, AlertTestResult, Backup, Catalogue, CatalogueChange, Erasure, EventType, EventTypeChange,
  EventTypeScope, NewErasure, NewEventType, NewPortalLink, PortalLink, PortalLinkCreated, Server, Setting,
} from "./types.js";

/** Which event type is meant: the tenant's, or the server's. */
export type EventTypeQuery = { scope?: EventTypeScope };

/** Event types, and what is done with events that do not fit them. */
export class EventTypes {
  readonly #api: Api;
  constructor(api: Api) { this.#api = api; }

  create(type: NewEventType, options?: CallOptions): Promise<EventType> {
    return this.#api.post("/v1/event-types", options, type);
  }
  /** The tenant's own, or else the server's. */
  get(name: string, query: EventTypeQuery = {}, options?: CallOptions): Promise<EventType> {
    return this.#api.get(`/v1/event-types/${part(name)}`, options, query);
  }
  list(query: EventTypeQuery = {}, options?: ListOptions): List<EventType> {
    return this.#api.list("/v1/event-types", options, query);
  }
  /** What is left out stays as it is; null removes. */
  update(
    name: string, change: EventTypeChange, query: EventTypeQuery = {}, options?: CallOptions,
  ): Promise<EventType> {
    return this.#api.patch(`/v1/event-types/${part(name)}`, options, change, query);
  }
  delete(name: string, query: EventTypeQuery = {}, options?: CallOptions): Promise<void> {
    return this.#api.delete(`/v1/event-types/${part(name)}`, options, query);
  }
  /** What is done with events of unknown types, and with those that do not fit their schema. */
  catalogue(options?: CallOptions): Promise<Catalogue> {
    return this.#api.get("/v1/catalogue", options);
  }
  /** What is left out stays as it is; null takes the server's choice. */
  updateCatalogue(change: CatalogueChange, options?: CallOptions): Promise<Catalogue> {
    return this.#api.patch("/v1/catalogue", options, change);
  }
}

/** How to wait for a job. */
export interface WaitOptions extends CallOptions {
  /** The pause between two questions. Half a second where it is left out. */
  pauseMs?: number;
}

/** Erasures of payloads. */
export class Erasures {
  readonly #api: Api;
  constructor(api: Api) { this.#api = api; }

  /** Erases the payload of one event, or of all events of an object. Resolves when the work is recorded. */
  create(what: NewErasure, options?: CallOptions): Promise<Erasure> {
    return this.#api.post("/v1/erasures", options, what);
  }
  get(id: string, options?: CallOptions): Promise<Erasure> {
    return this.#api.get(`/v1/erasures/${part(id)}`, options);
  }
  list(options?: ListOptions): List<Erasure> {
    return this.#api.list("/v1/erasures", options);
  }
  /** Resolves when the payloads cannot be read any more. `signal` ends the waiting. */
  waitErased(id: string, options: WaitOptions = {}): Promise<Erasure> {
    return this.#wait(id, options, ({ state }) => state !== "erasing");
  }
  /**
   * Resolves when nothing of the payloads is left in the store's files. The server overwrites those together for all
   * erasures of some minutes (`erasure.scrub_interval`).
   */
  wait(id: string, options: WaitOptions = {}): Promise<Erasure> {
    return this.#wait(id, options, ({ state }) => state === "finished");
  }
  async #wait(id: string, options: WaitOptions, hasEnded: (erasure: Erasure) => boolean): Promise<Erasure> {
    for (;;) {
      const erasure = await this.get(id, options);
      if (hasEnded(erasure)) return erasure;
      await new Promise((resolve) => setTimeout(resolve, options.pauseMs ?? 500));
      options.signal?.throwIfAborted();
    }
  }
}

/** Links that open the page for one tenant, once and without a key. */
export class PortalLinks {
  readonly #api: Api;
  constructor(api: Api) { this.#api = api; }

  /** The answer's `url` is shown this once. */
  async create(link: NewPortalLink, options?: CallOptions): Promise<PortalLinkCreated> {
    return hide(await this.#api.post<PortalLinkCreated>("/v1/portal-links", options, link), "url");
  }
  list(options?: ListOptions): List<PortalLink> {
    return this.#api.list("/v1/portal-links", options);
  }
  /** The session that it opened ends too. */
  revoke(id: string, options?: CallOptions): Promise<void> {
    return this.#api.delete(`/v1/portal-links/${part(id)}`, options);
  }
}

/** Targets of the operator's alerts, for admin keys. */
export class Alerts {
  readonly #api: Api;
  constructor(api: Api) { this.#api = api; }

  async list(options?: CallOptions): Promise<AlertTarget[]> {
    return (await this.#api.get<{ data: AlertTarget[] }>("/v1/alerts", options)).data;
  }
  /** Sends a test message to one target, or to all of them, and says how each went. */
  async test(target?: string, options?: CallOptions): Promise<AlertTestResult[]> {
    const body = target === undefined ? {} : { target };
    return (await this.#api.post<{ data: AlertTestResult[] }>("/v1/alerts/test", options, body)).data;
  }
}

/** The server itself, for admin keys. */
export class Operations {
  readonly #api: Api;
  constructor(api: Api) { this.#api = api; }

  /** Nodes, lanes, disk and clock. */
  server(options?: CallOptions): Promise<Server> {
    return this.#api.get("/v1/server", options);
  }
  /** Every setting, and where it comes from. Secrets are masked. */
  async settings(options?: CallOptions): Promise<Setting[]> {
    return (await this.#api.get<{ data: Setting[] }>("/v1/config", options)).data;
  }
  /** The last backup. */
  backup(options?: CallOptions): Promise<Backup> {
    return this.#api.get("/v1/backup", options);
  }
  /** Writes a backup to a directory of the server's machine: an absolute path, new or empty. */
  startBackup(to: string, options?: CallOptions): Promise<Backup> {
    return this.#api.post("/v1/backup", options, { to });
  }
}
