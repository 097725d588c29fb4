// The retry slots of a delivery, as the page draws them.
import type { Attempt, DeliveryDetail, SlotState } from './types';

export interface Slot {
  n: number;
  at: number;
  state: SlotState;
  attempt: Attempt | null;
}

export interface Schedule {
  /** When its clock started. */
  start: number;
  /** One for each retry. */
  slots: Slot[];
  /** The attempts since the clock started. */
  attempts: Attempt[];
}

export function scheduleOf({ schedule, attempt_log: log }: DeliveryDetail): Schedule {
  const start = Date.parse(schedule.started_at);
  const slots = schedule.slots
    .filter((slot) => slot.number > 0)
    .map((slot) => ({
      n: slot.number,
      at: Date.parse(slot.due_at),
      state: slot.state,
      attempt: log.find((attempt) => attempt.number === slot.attempt) ?? null,
    }));
  // What a replay left behind belongs to another schedule.
  return { start, slots, attempts: schedule.exact ? log.filter((attempt) => Date.parse(attempt.started_at) >= start) : [] };
}
