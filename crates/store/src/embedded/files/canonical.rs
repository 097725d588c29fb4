//! Encodes records to bytes for the checksums by which two stores are compared.
//!
//! The encoding is the codec's, in which equal values have equal bytes. It is never stored, so it
//! may change from one version to the next.

use postrider_domain::attempt::Attempt;
use postrider_domain::delivery::Delivery;
use postrider_domain::event::Event;

use super::codec::{self, Encoder};
use super::rows::delivery::put_delivery;
use crate::records::ReplayJob;

/// The bytes of one record.
#[derive(Debug, Default)]
pub(crate) struct Canonical(Encoder);

impl Canonical {
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.0.as_slice()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.0.text(text);
    }

    pub(crate) fn text_or_none(&mut self, text: Option<&str>) {
        self.0.option(text, Encoder::text);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.bytes(bytes);
    }

    pub(crate) fn unsigned(&mut self, number: u64) {
        self.0.unsigned(number);
    }

    pub(crate) fn signed(&mut self, number: i64) {
        self.0.signed(number);
    }

    pub(crate) fn signed_or_none(&mut self, number: Option<i64>) {
        self.0.option(number, Encoder::signed);
    }

    /// Appends a value as JSON, whose fields always come in the same order.
    pub(crate) fn json(&mut self, value: &impl serde::Serialize) {
        self.0.bytes(&serde_json::to_vec(value).unwrap_or_default());
    }

    pub(crate) fn event(&mut self, event: &Event) {
        codec::put_event(&mut self.0, event);
    }

    pub(crate) fn delivery(&mut self, delivery: &Delivery) {
        put_delivery(&mut self.0, delivery);
    }

    pub(crate) fn attempt(&mut self, attempt: &Attempt) {
        codec::put_attempt(&mut self.0, attempt);
    }

    pub(crate) fn replay(&mut self, job: &ReplayJob) {
        codec::put_whole_replay(&mut self.0, job);
    }
}
