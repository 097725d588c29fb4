// What a policy does while one URL is down. An approximation: deliveries accepted within a short time
// are moved together, an attempt takes no time, every attempt in the outage fails and every other one
// succeeds. `postrider simulate` follows each delivery and is exact.
import { offset } from './schedule';

export interface Policy {
  unitMs: number;
  retries: number;
  share: number;
  grace: number;
  disableAt: number;
  probeMs: number;
  freezeOver: number;
  freezeAfterMs: number;
  freezeAt: number;
}

export interface Scenario {
  perSecond: number;
  outageMs: number;
  healthyMs: number;
  /** How long after the outage somebody enables a frozen destination; null: nobody does. */
  enableAfterMs: number | null;
}

export interface Sample {
  at: number;
  waiting: number;
  dead: number;
}

export interface Outcome {
  samples: Sample[];
  dead: number;
  late: number;
  failedAttempts: number;
  disabledAt: number | null;
  frozenAt: number | null;
  /** When the first delivery arrived after the outage; null: never. */
  backAt: number | null;
  /** When nothing waited any more; null: not within the time that is shown. */
  doneAt: number | null;
  latestBy: number;
}

export const DEFAULTS: Policy = {
  unitMs: 84_800,
  retries: 11,
  share: 0.7,
  grace: 100,
  disableAt: 2000,
  probeMs: 600_000,
  freezeOver: 2000,
  freezeAfterMs: 72 * 3_600_000,
  freezeAt: 50_000,
};

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
/** Delays after each failed attempt, without a circuit. Stripe does not publish its intervals. */
export const OTHERS = {
  svix: [5000, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, 10 * HOUR],
  stripe: doubling(5 * MINUTE, 72 * HOUR),
};
export const SVIX_OFF_AFTER_MS = 5 * 24 * HOUR;

function doubling(first: number, until: number): number[] {
  const delays: number[] = [];
  let total = 0;
  for (let delay = first; total + delay <= until; delay *= 2) {
    delays.push(delay);
    total += delay;
  }
  // The last one makes up the rest.
  if (total < until) delays.push(until - total);
  return delays;
}

interface Cohort {
  due: number;
  accepted: number;
  n: number;
  slot: number;
}

const COHORTS = 3000;
const SAMPLES = 240;

class Queue {
  #heap: Cohort[] = [];

  push(one: Cohort) {
    const heap = this.#heap;
    let n = heap.push(one) - 1;
    while (n > 0) {
      const up = (n - 1) >> 1;
      if (heap[up]!.due <= one.due) break;
      heap[n] = heap[up]!;
      n = up;
    }
    heap[n] = one;
  }

  pop(): Cohort | undefined {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (!last || heap.length === 0) return first;
    let n = 0;
    for (;;) {
      let down = 2 * n + 1;
      if (down >= heap.length) break;
      if (down + 1 < heap.length && heap[down + 1]!.due < heap[down]!.due) down += 1;
      if (heap[down]!.due >= last.due) break;
      heap[n] = heap[down]!;
      n = down;
    }
    heap[n] = last;
    return first;
  }

  get next(): number {
    return this.#heap[0]?.due ?? Infinity;
  }
}

export function simulate(scenario: Scenario, policy: Policy): Outcome {
  const run = new Run(scenario, policy.retries === 0 ? 0 : offset(policy.retries, policy.unitMs));
  const due = (one: Cohort) => (one.slot <= policy.retries ? one.accepted + offset(one.slot, policy.unitMs) : null);
  let state = 'closed' as 'closed' | 'open' | 'frozen';
  let successes = Math.round((scenario.perSecond * scenario.healthyMs) / 1000);
  let failures = 0;
  let inARow = 0;
  let lastSuccess = 0;
  let probeAt = Infinity;
  const enableAt = scenario.enableAfterMs === null ? Infinity : scenario.outageMs + scenario.enableAfterMs;

  const close = () => {
    state = 'closed';
    successes = failures = inARow = 0;
    probeAt = Infinity;
  };
  const judge = (now: number) => {
    if (state === 'frozen') return;
    if (inARow >= policy.freezeAt || (inARow > policy.freezeOver && now - lastSuccess > policy.freezeAfterMs)) {
      state = 'frozen';
      probeAt = Infinity;
      run.out.frozenAt ??= now;
      return;
    }
    const attempts = successes + failures;
    const isBad = (attempts > policy.grace && failures / attempts > policy.share) || inARow >= policy.disableAt;
    if (state === 'closed' && failures > 0 && isBad) {
      state = 'open';
      probeAt = now + policy.probeMs;
      run.out.disabledAt ??= now;
    }
  };

  while (run.goesOn()) {
    const now = Math.min(run.queue.next, probeAt, run.arrival, state === 'frozen' ? enableAt : Infinity, run.sampleAt);
    if (now === Infinity) break;
    if (now === run.sampleAt && now < Math.min(run.queue.next, probeAt, run.arrival)) {
      run.sample();
      continue;
    }
    const isDown = now < scenario.outageMs;
    if (state === 'frozen' && now >= enableAt) {
      close();
      lastSuccess = now;
      continue;
    }
    if (now === probeAt) {
      if (isDown) {
        run.out.failedAttempts += 1;
        failures += 1;
        inARow += 1;
        probeAt = now + policy.probeMs;
        judge(now);
      } else {
        close();
        lastSuccess = now;
        run.out.backAt ??= now;
      }
      continue;
    }
    const one = now === run.arrival ? run.arrive() : run.queue.pop()!;
    if (state === 'open' || state === 'frozen') judge(now);
    if (state === 'closed' && isDown) {
      run.out.failedAttempts += one.n;
      failures += one.n;
      inARow += one.n;
      judge(now);
    } else if (state === 'closed') {
      successes += one.n;
      inARow = 0;
      lastSuccess = now;
      run.delivered(one, now);
      // From here on new deliveries arrive at once.
      run.arrival = Infinity;
      continue;
    }
    one.slot += 1;
    run.wait(one, due(one), now);
  }
  return run.finish();
}

/** A schedule of delays after each failed attempt, without a circuit. */
export function simulateFixed(scenario: Scenario, delays: number[], offAfterMs: number | null): Outcome {
  const run = new Run(scenario, delays.reduce((sum, delay) => sum + delay, 0));
  const isOff = (now: number) => offAfterMs !== null && scenario.outageMs > offAfterMs && now >= offAfterMs;
  while (run.goesOn()) {
    const now = Math.min(run.queue.next, run.arrival, run.sampleAt);
    if (now === run.sampleAt && now < Math.min(run.queue.next, run.arrival)) {
      run.sample();
      continue;
    }
    const one = now === run.arrival ? run.arrive() : run.queue.pop()!;
    if (isOff(now)) {
      run.wait(one, null, now);
    } else if (now >= scenario.outageMs) {
      run.delivered(one, now);
      run.arrival = Infinity;
    } else {
      run.out.failedAttempts += one.n;
      const delay = delays[one.slot];
      one.slot += 1;
      run.wait(one, delay === undefined ? null : now + delay, now);
    }
  }
  return run.finish();
}

/** What both kinds have in common: arrivals, what waits, and the course of time. */
class Run {
  queue = new Queue();
  arrival = 0;
  sampleAt = 0;
  out: Outcome = { samples: [], dead: 0, late: 0, failedAttempts: 0, disabledAt: null, frozenAt: null, backAt: null, doneAt: null, latestBy: 0 };
  #scenario: Scenario;
  #step: number;
  #end: number;
  #waiting = 0;

  constructor(scenario: Scenario, scheduleMs: number) {
    this.#scenario = scenario;
    this.#end = scenario.outageMs + scheduleMs + HOUR;
    this.#step = Math.max(scenario.outageMs / COHORTS, 1000 / scenario.perSecond);
  }

  goesOn(): boolean {
    return this.sampleAt <= this.#end && this.out.doneAt === null;
  }

  arrive(): Cohort {
    const accepted = this.arrival;
    this.arrival += this.#step;
    return { due: accepted, accepted, n: (this.#step / 1000) * this.#scenario.perSecond, slot: 0 };
  }

  wait(one: Cohort, due: number | null, now: number) {
    if (one.slot <= 1 && now === one.accepted) this.#waiting += one.n;
    if (due === null) {
      this.#waiting -= one.n;
      this.out.dead += one.n;
    } else {
      one.due = Math.max(due, now);
      this.queue.push(one);
    }
  }

  delivered(one: Cohort, now: number) {
    if (now >= this.#scenario.outageMs) this.out.backAt ??= now;
    if (one.slot === 0) return;
    this.#waiting -= one.n;
    this.out.late += one.n;
    this.out.latestBy = Math.max(this.out.latestBy, now - one.accepted);
  }

  sample() {
    const at = this.sampleAt;
    this.out.samples.push({ at, waiting: Math.max(0, Math.round(this.#waiting)), dead: Math.round(this.out.dead) });
    if (at > this.#scenario.outageMs && this.#waiting < 0.5 && this.out.backAt !== null) this.out.doneAt = at;
    this.sampleAt += this.#end / SAMPLES;
  }

  finish(): Outcome {
    const { out } = this;
    return { ...out, dead: Math.round(out.dead), late: Math.round(out.late), failedAttempts: Math.round(out.failedAttempts) };
  }
}
