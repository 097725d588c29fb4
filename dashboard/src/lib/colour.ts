// The portal's accent colour, made readable.

type Rgb = [number, number, number];

const LIGHT: Rgb = [255, 255, 255];
const DARK: Rgb = [14, 17, 23];
/** WCAG asks for 4.5; some more, because the surfaces of the page are not pure white or black. */
const CONTRAST = 5;

function parse(hex: string): Rgb | null {
  const found = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})$/i.exec(hex);
  return found ? [parseInt(found[1]!, 16), parseInt(found[2]!, 16), parseInt(found[3]!, 16)] : null;
}

const show = (rgb: Rgb) => `#${rgb.map((part) => Math.round(part).toString(16).padStart(2, '0')).join('')}`;
const mix = (a: Rgb, b: Rgb, share: number) => a.map((part, n) => part + (b[n]! - part) * share) as Rgb;

function luminance(rgb: Rgb): number {
  const [r, g, b] = rgb.map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  }) as Rgb;
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

export function contrast(a: Rgb, b: Rgb): number {
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x) as [number, number];
  return (high + 0.05) / (low + 0.05);
}

/** The colour, darker or lighter until text in it can be read, and a soft shade to stand behind it. */
export function readableOn(hex: string, isDark: boolean): { text: string; soft: string } | null {
  const colour = parse(hex);
  if (!colour) return null;
  const [ground, away] = isDark ? [DARK, LIGHT] : [LIGHT, DARK];
  for (let share = 0; ; share += 0.05) {
    const text = mix(colour, away, Math.min(share, 1));
    const soft = mix(ground, text, 0.1);
    if (share >= 1 || contrast(text, soft) >= CONTRAST) return { text: show(text), soft: show(soft) };
  }
}
