//! Runs large work on separate threads of a lower priority.
//!
//! The caller chooses the size of an event, of a batch and of a page. Reading, signing, writing or
//! encoding a megabyte takes milliseconds of computing, and three hundred of these in a row keep
//! the threads busy for a tenth of a second. On separate threads large work delays only other large
//! work.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinHandle};

/// Work of this many bytes or more is large.
pub const LARGE_BYTES: usize = 64 << 10;
/// A batch of this many events or more is large.
pub(crate) const LARGE_BATCH: usize = 16;
/// With this many deliveries or more (events times subscriptions) even a small event is large.
pub(crate) const LARGE_FAN_OUT: usize = 256;

/// The runtime for large work.
#[derive(Debug, Clone, Default)]
pub struct Background(Option<Handle>);

impl Background {
    /// Uses the threads of another runtime. The default is the runtime of the caller.
    pub const fn on(runtime: Handle) -> Self {
        Background(Some(runtime))
    }

    /// Spawns a task here, or in the background if the work is large.
    pub fn spawn<F>(&self, is_large: bool, work: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        match &self.0 {
            Some(runtime) if is_large => runtime.spawn(work),
            Some(_) | None => tokio::spawn(work),
        }
    }

    /// Runs large work in the background; if the caller goes away, the work is aborted.
    ///
    /// # Panics
    ///
    /// If the work panics, with the same panic.
    pub async fn run<F>(&self, work: F) -> F::Output
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let Some(runtime) = &self.0 else { return work.await };
        match EndedWithCaller(runtime.spawn(work)).await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The process is shutting down: nobody waits for the result any more.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

/// Aborts its task when dropped, because nobody waits for the result any more.
struct EndedWithCaller<T>(JoinHandle<T>);

impl<T> Future for EndedWithCaller<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(ready!(Pin::new(&mut self.0).poll(context)))
    }
}

impl<T> Drop for EndedWithCaller<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::thread::ThreadId;

    use super::*;

    async fn thread() -> ThreadId {
        std::thread::current().id()
    }

    /// A runtime with one thread, and the identifier of that thread.
    fn other() -> (tokio::runtime::Runtime, ThreadId) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
        let runtime = runtime.unwrap();
        let id = runtime.spawn(thread());
        let id = runtime.block_on(id).unwrap();
        (runtime, id)
    }

    #[test]
    fn large_work_is_done_on_the_other_threads_and_small_work_is_not() {
        let (runtime, there) = other();
        let background = Background::on(runtime.handle().clone());
        let here = tokio::runtime::Builder::new_current_thread().build().unwrap();
        here.block_on(async {
            assert_eq!(background.run(thread()).await, there);
            assert_eq!(background.spawn(true, thread()).await.unwrap(), there);
            assert_ne!(background.spawn(false, thread()).await.unwrap(), there);
            assert_ne!(Background::default().run(thread()).await, there);
        });
    }

    #[test]
    fn work_ends_with_its_caller() {
        let (runtime, _) = other();
        let background = Background::on(runtime.handle().clone());
        let (held, mut let_go) = tokio::sync::oneshot::channel::<()>();
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let here = tokio::runtime::Builder::new_current_thread().build().unwrap();
        here.block_on(async {
            let work = background.run(async move {
                begun.send(()).unwrap();
                std::future::pending::<()>().await;
                drop(held);
            });
            tokio::select! {
                () = work => unreachable!("it never ends"),
                _ = has_begun => {}
            }
            // The task is dropped with everything that it owns.
            assert!((&mut let_go).await.is_err());
        });
    }

    #[test]
    #[should_panic(expected = "on purpose")]
    fn panic_reaches_the_caller() {
        let (runtime, _) = other();
        let background = Background::on(runtime.handle().clone());
        let here = tokio::runtime::Builder::new_current_thread().build().unwrap();
        here.block_on(background.run(async { panic!("on purpose") }))
    }
}
