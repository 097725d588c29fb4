import { readableOn } from './colour';
import type { Theme } from './types';

export type Mode = 'light' | 'dark' | 'auto';

const PLACE = 'postrider-theme';
const system = matchMedia('(prefers-color-scheme: dark)');

class Look {
  choice = $state<Mode>('auto');
  systemIsDark = $state(system.matches);
  isDark = $derived(this.choice === 'auto' ? this.systemIsDark : this.choice === 'dark');
  utc = $state(false);
  /** The portal's own colour. */
  accent: string | null = null;

  constructor() {
    const kept = read(PLACE);
    if (kept === 'light' || kept === 'dark') this.choice = kept;
    this.utc = read('postrider-utc') === 'yes';
    system.addEventListener('change', () => {
      this.systemIsDark = system.matches;
      this.paint();
    });
    this.paint();
  }

  choose(mode: Mode) {
    this.choice = mode;
    write(PLACE, mode);
    this.paint();
  }

  chooseUtc(utc: boolean) {
    this.utc = utc;
    write('postrider-utc', utc ? 'yes' : 'no');
  }

  paint() {
    const root = document.documentElement;
    root.dataset.theme = this.isDark ? 'dark' : 'light';
    for (const name of ['--accent', '--accent-soft']) root.style.removeProperty(name);
    const accent = this.accent && readableOn(this.accent, this.isDark);
    if (!accent) return;
    root.style.setProperty('--accent', accent.text);
    root.style.setProperty('--accent-soft', accent.soft);
  }
}

// A frame of another origin may have no storage.
function read(name: string): string | null {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function write(name: string, value: string) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // The choice then lasts as long as the page.
  }
}

export const look = new Look();

/** The portal's look, as the application asked for it. */
export function applyTheme(theme: Theme | null) {
  look.accent = theme?.accent ?? null;
  if (theme?.mode === 'light' || theme?.mode === 'dark') look.choice = theme.mode;
  look.paint();
}
