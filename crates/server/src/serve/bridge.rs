//! The engine, as the API wants to see it; the vault, as the engine wants to see it.
