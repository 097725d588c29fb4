//! Which URLs and addresses may be contacted: tables of hostile URLs, the edges of every network,
//! and properties.

mod addresses;
mod oracle;
mod properties;
mod table;
mod urls;
