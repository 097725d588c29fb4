import { look } from './theme.svelte';

/** A date field's text as the API takes it. The field has no zone: it means the one that times are shown in. */
export function whenTyped(text: string): string | null {
  if (!text) return null;
  const date = new Date(look.utc && !text.endsWith('Z') ? `${text}Z` : text);
  return Number.isNaN(date.getTime()) ? text : date.toISOString();
}
