// The tab's name and icon say whether something needs somebody.
import { api } from './api';
import { everyFailing, pauseFor } from './everything';
import { Resource } from './resource.svelte';
import { pages } from './pages';
import { router } from './router.svelte';
import { session } from './session.svelte';

export const trouble = $state({ frozen: 0, disabled: 0 });

interface Failing {
  frozen: number;
  disabled: number;
  enabled?: number;
}

const EVERY_MS = 10_000;

/** The summary is about one tenant; for all of them the failing ones are counted here. */
async function countFailing(signal: AbortSignal): Promise<Failing> {
  const { rows } = await everyFailing(api, signal);
  const frozen = rows.filter((row) => row.state === 'frozen').length;
  return { frozen, disabled: rows.length - frozen };
}

/** Use it during the set-up of the shell. */
export function attention() {
  const all = new Resource<Failing>((signal) => (session.isAll ? countFailing(signal) : api.destinationSummary(signal)), {
    every: (found) => Math.max(EVERY_MS, found ? pauseFor((found.enabled ?? 0) + found.disabled + found.frozen) : 0),
    depends: () => session.tenant,
  });

  $effect(() => {
    trouble.frozen = all.value?.frozen ?? 0;
    trouble.disabled = all.value?.disabled ?? 0;
  });

  $effect(() => {
    const name = pages.find((page) => page.path === (router.parts[0] ?? 'overview'))?.name ?? 'Postrider';
    const product = session.view?.theme?.name ?? 'Postrider';
    document.title = `${trouble.frozen > 0 ? `● ${trouble.frozen} frozen · ` : ''}${name} · ${product}`;
    const icon = document.getElementById('favicon') as HTMLLinkElement | null;
    if (icon) icon.href = trouble.frozen > 0 ? './favicon-alert.svg' : './favicon.svg';
  });
}
