//! Finds out whether a body of unknown length is large, by reading its beginning.
//!
//! Large work is done on threads of a lower priority. The length of a chunked body is not known
//! before its end, so that a small event of a client that sends in chunks would wait there behind
//! the large work of others. **At most [`LARGE_BYTES`] and one piece are read ahead.**

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use postrider_engine::LARGE_BYTES;

/// A body that is not there after this time is taken to be large: who sends slowly can wait.
const PATIENCE: Duration = Duration::from_secs(1);

/// Reads the beginning of a body. Returns the same body, and whether it is large.
pub(crate) async fn peek(body: Body) -> (Body, bool) {
    let mut begun = Begun { read: VecDeque::new(), bytes: 0, rest: Rest::Coming(body) };
    let is_small = tokio::time::timeout(PATIENCE, begun.read_ahead()).await.unwrap_or(false);
    (Body::new(begun), !is_small)
}

/// A body of which the beginning was read.
struct Begun {
    read: VecDeque<Bytes>,
    /// The bytes in `read`.
    bytes: usize,
    rest: Rest,
}

enum Rest {
    Coming(Body),
    Failed(axum::Error),
    Ended,
}

impl Begun {
    /// Reads until the body has ended, or is large; returns whether it has ended.
    async fn read_ahead(&mut self) -> bool {
        while self.bytes < LARGE_BYTES {
            let Rest::Coming(body) = &mut self.rest else { return true };
            match body.frame().await {
                // Trailers mean nothing here.
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.bytes += data.len();
                        self.read.push_back(data);
                    }
                }
                Some(Err(error)) => self.rest = Rest::Failed(error),
                None => self.rest = Rest::Ended,
            }
        }
        false
    }
}

impl HttpBody for Begun {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(data) = self.read.pop_front() {
            self.bytes -= data.len();
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        match std::mem::replace(&mut self.rest, Rest::Ended) {
            Rest::Coming(mut body) => {
                let frame = Pin::new(&mut body).poll_frame(context);
                self.rest = Rest::Coming(body);
                frame
            }
            Rest::Failed(error) => Poll::Ready(Some(Err(error))),
            Rest::Ended => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty()
            && match &self.rest {
                Rest::Coming(body) => body.is_end_stream(),
                Rest::Failed(_) => false,
                Rest::Ended => true,
            }
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.bytes as u64;
        let mut hint = match &self.rest {
            Rest::Coming(body) => body.size_hint(),
            Rest::Failed(_) | Rest::Ended => SizeHint::with_exact(0),
        };
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(read));
        }
        hint.set_lower(hint.lower().saturating_add(read));
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures_util::{StreamExt as _, stream};

    use super::*;

    /// A body of unknown length, of pieces of this size.
    fn pieces(sizes: &[usize]) -> Body {
        let pieces: Vec<_> =
            sizes.iter().map(|size| Ok::<_, io::Error>(Bytes::from(vec![b'x'; *size]))).collect();
        Body::from_stream(stream::iter(pieces))
    }

    #[tokio::test]
    async fn body_of_unknown_length_is_large_when_much_of_it_has_come() {
        for (sizes, expected) in [
            (&[][..], false),
            (&[10, 0, 20], false),
            (&[LARGE_BYTES - 1], false),
            (&[LARGE_BYTES], true),
            (&[LARGE_BYTES - 1, 1, 500], true),
            (&[1_000; 200], true),
        ] {
            let (body, is_large) = peek(pieces(sizes)).await;
            assert_eq!(is_large, expected, "{} pieces", sizes.len());
            let whole: usize = sizes.iter().sum();
            if !is_large {
                assert_eq!(body.size_hint().exact(), Some(whole as u64), "its length is known");
            }
            assert!(body.size_hint().lower() <= whole as u64);
            assert_eq!(body.collect().await.unwrap().to_bytes().len(), whole);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_body_is_taken_to_be_large_and_loses_nothing() {
        let first = stream::iter([Ok::<_, io::Error>(Bytes::from_static(b"first"))]);
        let last = stream::once(async {
            postrider_transport::pause(2 * PATIENCE).await;
            Ok(Bytes::from_static(b", last"))
        });
        let (body, is_large) = peek(Body::from_stream(first.chain(last))).await;
        assert!(is_large);
        assert_eq!(body.collect().await.unwrap().to_bytes(), "first, last");
    }

    #[tokio::test]
    async fn body_that_breaks_off_breaks_off_for_its_reader() {
        let broken = stream::iter([Ok(Bytes::from_static(b"a")), Err(io::Error::other("gone"))]);
        let (body, is_large) = peek(Body::from_stream(broken)).await;
        assert!(!is_large && !body.is_end_stream());
        assert!(body.collect().await.is_err());
    }
}
