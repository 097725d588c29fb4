//! What may be contacted: the tables of hostile URLs, the edges of every network, and properties.

mod addresses;
mod oracle;
mod properties;
mod table;
mod urls;
