//! Fields to be changed: what is not named stays as it is, and null removes.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// The named fields with their new values.
#[derive(Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct Fields(BTreeMap<&'static str, Value>);

impl Fields {
    pub(super) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Fields {
        self.0.insert(name, value.into());
        self
    }
}

impl fmt::Debug for Fields {
    /// The names of the fields: some values are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
