//! Classifies errors: what went wrong, and whose fault it is.
//!
//! Every error of a library becomes a [`Fault`] here, so that the classes are decided in one place.
//! An error is recognised by its type, never by its text. A detail never contains a secret; it may
//! contain an address, for operators.

use std::error::Error as StdError;
use std::io;

use postrider_domain::attempt::{Ending, Failure, FailureClass, OwnFault, OwnFaultKind, Phase};
use postrider_domain::egress::AddressRefusal;
use postrider_domain::limits::ERROR_DETAIL_CHARS_MAX;

/// Why there is no response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A failure of the destination, or of the network on the way to it.
    Theirs(FailureClass, String),
    /// Our own fault.
    Ours(OwnFaultKind, String),
}

impl Fault {
    pub(crate) fn theirs(class: FailureClass, detail: impl Into<String>) -> Self {
        Fault::Theirs(class, detail.into())
    }

    pub(crate) fn ours(kind: OwnFaultKind, detail: impl Into<String>) -> Self {
        Fault::Ours(kind, detail.into())
    }

    /// The deadline passed in this phase.
    pub(crate) fn timeout(phase: Phase) -> Self {
        Fault::theirs(FailureClass::Timeout(phase), "the deadline came")
    }
}

impl From<Fault> for Ending {
    fn from(fault: Fault) -> Self {
        // Parts of the text may come from a receiver: control characters must not reach a log.
        let visible = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        let short = |text: String| text.chars().take(ERROR_DETAIL_CHARS_MAX).map(visible).collect();
        match fault {
            Fault::Theirs(class, detail) => {
                Ending::Failed(Failure { class, detail: short(detail) })
            }
            Fault::Ours(kind, detail) => Ending::OwnFault(OwnFault { kind, detail: short(detail) }),
        }
    }
}

impl From<AddressRefusal> for Fault {
    fn from(refusal: AddressRefusal) -> Self {
        Fault::Theirs(refusal.class(), refusal.for_operator())
    }
}

/// Why connecting failed.
pub(crate) fn of_connect(error: &io::Error) -> Fault {
    if is_resources(error) {
        return Fault::ours(OwnFaultKind::Resources, error.to_string());
    }
    let class = if error.kind() == io::ErrorKind::TimedOut {
        FailureClass::Timeout(Phase::Connect)
    } else if error.kind() == io::ErrorKind::ConnectionReset {
        FailureClass::Reset
    } else {
        // Refused, unreachable, or anything else that left us without a connection.
        FailureClass::Refused
    };
    Fault::theirs(class, error.to_string())
}

/// Why the TLS handshake failed.
pub(crate) fn of_handshake(error: &io::Error) -> Fault {
    match of_tls(error) {
        Some(fault) => fault,
        None if is_resources(error) => Fault::ours(OwnFaultKind::Resources, error.to_string()),
        None => Fault::theirs(
            FailureClass::Reset,
            format!("the connection broke during the TLS handshake: {error}"),
        ),
    }
}

/// The fault if the error is one of TLS.
pub(crate) fn of_tls(error: &io::Error) -> Option<Fault> {
    let tls = find::<rustls::Error>(error)?;
    Some(Fault::theirs(FailureClass::Tls, crate::tls::describe(tls)))
}

/// Classifies hyper's error of a request on an open connection.
pub(crate) fn of_exchange(error: &hyper::Error) -> Fault {
    if error.is_parse() {
        return Fault::theirs(FailureClass::Protocol, with_cause(error));
    }
    if let Some(http2) = find::<h2::Error>(error) {
        return of_http2(http2);
    }
    if error.is_user() && !error.is_canceled() && !is_gone(error) {
        return Fault::ours(OwnFaultKind::Internal, with_cause(error));
    }
    if let Some(io) = find::<io::Error>(error)
        && is_resources(io)
    {
        return Fault::ours(OwnFaultKind::Resources, io.to_string());
    }
    Fault::theirs(FailureClass::Reset, with_cause(error))
}

/// Whether the connection was closed before a response, so that the request may be sent again.
pub(crate) fn is_death(error: &hyper::Error) -> bool {
    match find::<h2::Error>(error) {
        // A connection that we closed because of what we received does not count.
        Some(http2) => {
            let is_refused = http2.reason() == Some(h2::Reason::REFUSED_STREAM);
            http2.is_io() || (http2.is_remote() && (http2.is_go_away() || is_refused))
        }
        None => !error.is_parse(),
    }
}

fn of_http2(error: &h2::Error) -> Fault {
    // A protocol error that h2 detected in the receiver's data is `Protocol`; an error that the
    // receiver reported is `Reset`.
    let class = if error.is_library() { FailureClass::Protocol } else { FailureClass::Reset };
    Fault::theirs(class, format!("http/2: {error}"))
}

/// Whether the connection's task has ended; hyper reports that as a user error.
fn is_gone(error: &hyper::Error) -> bool {
    error.is_closed() || error.is_incomplete_message() || error.is_body_write_aborted()
}

fn with_cause(error: &hyper::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Whether we ran out of file descriptors, ports or memory.
pub(crate) fn is_resources(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ENOBUFS: i32 = if cfg!(target_os = "linux") { 105 } else { 55 };
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE | ENOBUFS))
        || matches!(
            error.kind(),
            io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse | io::ErrorKind::OutOfMemory
        )
}

/// The first error of type `T` among an error and its causes, including those inside `io::Error`s.
fn find<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_out_of_something_is_ours_and_all_else_is_theirs() {
        let refused = FailureClass::Refused;
        let cases = [
            (io::Error::from_raw_os_error(24), None),
            (io::Error::from_raw_os_error(23), None),
            (io::ErrorKind::AddrNotAvailable.into(), None),
            (io::ErrorKind::AddrInUse.into(), None),
            (io::ErrorKind::OutOfMemory.into(), None),
            (io::ErrorKind::ConnectionRefused.into(), Some(refused)),
            (io::ErrorKind::HostUnreachable.into(), Some(refused)),
            (io::ErrorKind::NetworkUnreachable.into(), Some(refused)),
            (io::ErrorKind::PermissionDenied.into(), Some(refused)),
            (io::ErrorKind::ConnectionReset.into(), Some(FailureClass::Reset)),
            (io::ErrorKind::TimedOut.into(), Some(FailureClass::Timeout(Phase::Connect))),
        ];
        for (error, expected) in cases {
            let class = match of_connect(&error) {
                Fault::Theirs(class, _) => Some(class),
                Fault::Ours(kind, _) => {
                    assert_eq!(kind, OwnFaultKind::Resources);
                    None
                }
            };
            assert_eq!(class, expected, "{error}");
        }
    }

    #[test]
    fn a_detail_is_short_and_has_no_control_characters() {
        let text = format!("a\r\n\u{1b}[31mb{}", "x".repeat(10_000));
        let Ending::Failed(failure) = Fault::theirs(FailureClass::Reset, text).into() else {
            panic!("not a failure")
        };
        assert_eq!(failure.detail.chars().count(), ERROR_DETAIL_CHARS_MAX);
        assert!(failure.detail.starts_with("a\u{fffd}\u{fffd}\u{fffd}[31mbx"));
    }

    #[test]
    fn a_cause_is_found_however_deep_it_is_wrapped() {
        let inner = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::DecryptError);
        let outer = io::Error::other(inner);
        let class = FailureClass::Tls;
        assert!(matches!(of_tls(&outer), Some(Fault::Theirs(found, _)) if found == class));
        assert_eq!(of_tls(&io::ErrorKind::UnexpectedEof.into()), None);
    }
}
