//! The body of a request: its parts, sent without a copy.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// Bytes that are sent as one frame for each part; empty parts are left out.
#[derive(Debug)]
pub(crate) struct Payload([Option<Bytes>; 2]);

impl Payload {
    pub(crate) fn new(body: &postrider_domain::payload::Body) -> Self {
        Payload(body.parts().map(|part| (!part.is_empty()).then(|| part.clone())))
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.0.iter_mut().find_map(Option::take);
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    fn size_hint(&self) -> SizeHint {
        let bytes = self.0.iter().flatten().map(Bytes::len).sum::<usize>();
        SizeHint::with_exact(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}
