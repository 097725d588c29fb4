// How a receiver verifies a signature (Standard Webhooks, HMAC-SHA256), in four languages. Tests run each of them.
import go from '../snippets/verify.go?raw';
import javascript from '../snippets/verify.mjs?raw';
import python from '../snippets/verify.py?raw';
import rust from '../snippets/verify.rs?raw';

export const SNIPPETS: Record<string, string> = { Python: python, JavaScript: javascript, Go: go, Rust: rust };
