import { untrack } from 'svelte';

/** A text that follows another one when that has stayed the same for a while. Use it during a component's set-up. */
export class Settled {
  value = $state('');

  constructor(read: () => string, pauseMs: number) {
    this.value = untrack(read);
    $effect(() => {
      const next = read();
      const timer = setTimeout(() => (this.value = next), pauseMs);
      return () => clearTimeout(timer);
    });
  }
}
