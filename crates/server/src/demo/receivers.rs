//! The receivers of the demonstration. Each answers as its mood says, and its mood changes while the
//! demonstration runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use tokio::sync::watch;

const SLOW: Duration = Duration::from_millis(300);

/// How a receiver answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    Prompt,
    Slow,
    Flaky,
    Failing,
    Hanging,
    Gone,
}

impl Mood {
    pub(super) const fn words(self) -> &'static str {
        match self {
            Mood::Prompt => "answers at once",
            Mood::Slow => "answers after 300 ms",
            Mood::Flaky => "fails every third time",
            Mood::Failing => "answers 500",
            Mood::Hanging => "never answers",
            Mood::Gone => "answers 410 Gone",
        }
    }

    /// Whether no request succeeds.
    pub(super) const fn is_down(self) -> bool {
        match self {
            Mood::Prompt | Mood::Slow | Mood::Flaky => false,
            Mood::Failing | Mood::Hanging | Mood::Gone => true,
        }
    }

    /// The status of the n-th answer, counted from zero.
    const fn status(self, n: u64) -> StatusCode {
        match self {
            Mood::Flaky if n.is_multiple_of(3) => StatusCode::SERVICE_UNAVAILABLE,
            Mood::Prompt | Mood::Slow | Mood::Flaky => StatusCode::OK,
            Mood::Failing | Mood::Hanging => StatusCode::INTERNAL_SERVER_ERROR,
            Mood::Gone => StatusCode::GONE,
        }
    }
}

/// Which events a receiver is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Diet {
    /// Many a second.
    Orders,
    /// A few a second, so that few die.
    Invoices,
}

impl Diet {
    pub(super) const fn event_type(self) -> &'static str {
        match self {
            Diet::Orders => "demo.order.paid",
            Diet::Invoices => "demo.invoice.sent",
        }
    }
}

/// A receiver as it is at the start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Role {
    /// The path of its URL, without the slash.
    pub(super) name: &'static str,
    pub(super) mood: Mood,
    pub(super) diet: Diet,
}

const fn role(name: &'static str, mood: Mood, diet: Diet) -> Role {
    Role { name, mood, diet }
}

/// The receivers, in the order of the screen. The first one is the healthy one that all others are compared with.
pub(super) const CAST: [Role; 7] = [
    role("healthy", Mood::Prompt, Diet::Orders),
    role("slow", Mood::Slow, Diet::Orders),
    role("flaky", Mood::Flaky, Diet::Orders),
    role("hangs", Mood::Hanging, Diet::Orders),
    role("comes", Mood::Failing, Diet::Orders),
    role("broken", Mood::Failing, Diet::Invoices),
    role("gone", Mood::Gone, Diet::Invoices),
];

/// One running receiver.
struct Receiver {
    mood: watch::Sender<Mood>,
    /// Requests that it has not answered yet.
    open: AtomicUsize,
    answers: AtomicU64,
}

impl Receiver {
    /// The answer to one request.
    async fn answer(&self) -> StatusCode {
        let _open = Open::new(&self.open);
        let mut moods = self.mood.subscribe();
        let n = self.answers.fetch_add(1, Ordering::Relaxed);
        let mood = *moods.borrow_and_update();
        match mood {
            Mood::Hanging => {
                // A repaired receiver answers what it left hanging. Waiting fails only at the end of the demonstration.
                let awake = moods.wait_for(|mood| *mood != Mood::Hanging).await;
                awake.map_or(StatusCode::INTERNAL_SERVER_ERROR, |mood| mood.status(n))
            }
            Mood::Slow => {
                // A future that never resolves, so that the timeout passes.
                drop(tokio::time::timeout(SLOW, std::future::pending::<()>()).await);
                mood.status(n)
            }
            Mood::Prompt | Mood::Flaky | Mood::Failing | Mood::Gone => mood.status(n),
        }
    }
}

/// Counts a request as open until it is answered, or the sender gives up.
struct Open<'a>(&'a AtomicUsize);

impl<'a> Open<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Open(count)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All receivers, at one address.
#[derive(Clone)]
pub(super) struct Receivers(Arc<[Receiver; CAST.len()]>);

impl Receivers {
    pub(super) fn new() -> Receivers {
        Receivers(Arc::new(CAST.map(|role| Receiver {
            mood: watch::Sender::new(role.mood),
            open: AtomicUsize::new(0),
            answers: AtomicU64::new(0),
        })))
    }

    /// Their routes.
    pub(super) fn router(&self) -> Router {
        Router::new().route("/{name}", post(answer)).with_state(self.clone())
    }

    /// Changes the mood of the receiver in this row.
    pub(super) fn set_mood(&self, row: usize, mood: Mood) {
        if let Some(receiver) = self.0.get(row) {
            receiver.mood.send_replace(mood);
        }
    }

    /// How many requests each has open.
    pub(super) fn open(&self) -> [usize; CAST.len()] {
        self.0.each_ref().map(|receiver| receiver.open.load(Ordering::Relaxed))
    }
}

async fn answer(State(receivers): State<Receivers>, Path(name): Path<String>) -> StatusCode {
    let row = CAST.iter().position(|role| role.name == name);
    match row.and_then(|row| receivers.0.get(row)) {
        Some(receiver) => receiver.answer().await,
        None => StatusCode::NOT_FOUND,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn hanging_receiver_answers_when_it_is_repaired() {
        let receivers = Receivers::new();
        let row = CAST.iter().position(|role| role.mood == Mood::Hanging).unwrap();
        let held = receivers.clone();
        let answer = tokio::spawn(async move { held.0[row].answer().await });
        while receivers.open()[row] == 0 {
            tokio::task::yield_now().await;
        }
        receivers.set_mood(row, Mood::Prompt);
        assert_eq!(answer.await.unwrap(), StatusCode::OK);
        assert_eq!(receivers.open()[row], 0);
    }

    #[test]
    fn flaky_receiver_fails_every_third_time() {
        let statuses: Vec<u16> = (0..6).map(|n| Mood::Flaky.status(n).as_u16()).collect();
        assert_eq!(statuses, [503, 200, 200, 503, 200, 200]);
    }
}
