//! Lists: pages are fetched as they are needed.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::call::Call;
use crate::client::Client;
use crate::error::Error;

/// One page of a list.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct Page<T> {
    /// The entries.
    pub data: Vec<T>,
    /// Where the next page begins; absent on the last one.
    pub next_cursor: Option<String>,
}

/// All entries of a list, as a stream. A page is fetched when it is needed.
pub struct List<T> {
    client: Client,
    call: Result<Call, Error>,
    entries: Option<BoxStream<'static, Result<T, Error>>>,
}

impl<T: DeserializeOwned + Send + 'static> List<T> {
    pub(crate) fn new(client: &Client, call: Result<Call, Error>) -> List<T> {
        List { client: client.clone(), call, entries: None }
    }

    /// Fetches so many entries at a time, 1 to 1000. It does not limit how many there are.
    #[must_use]
    pub fn page_size(mut self, entries: u32) -> List<T> {
        self.call = self.call.map(|call| call.query("limit", entries.to_string()));
        self
    }

    /// One page, for those who keep the cursor themselves.
    ///
    /// # Errors
    /// As every call.
    pub async fn page(&self, cursor: Option<&str>) -> Result<Page<T>, Error> {
        let call = self.call.clone()?;
        fetch(&self.client, call, cursor).await
    }

    /// The next entry; `None` after the last one.
    pub async fn next(&mut self) -> Option<Result<T, Error>> {
        self.entries().next().await
    }

    /// All entries.
    ///
    /// # Errors
    /// As every call.
    pub async fn all(mut self) -> Result<Vec<T>, Error> {
        self.entries().try_collect().await
    }

    /// The first entries, at most so many.
    ///
    /// # Errors
    /// As every call.
    pub async fn first(mut self, max: usize) -> Result<Vec<T>, Error> {
        self.entries().take(max).try_collect().await
    }

    fn entries(&mut self) -> &mut BoxStream<'static, Result<T, Error>> {
        let List { client, call, entries } = self;
        entries.get_or_insert_with(|| pages(client.clone(), call.clone()))
    }
}

fn pages<T: DeserializeOwned + Send + 'static>(
    client: Client,
    call: Result<Call, Error>,
) -> BoxStream<'static, Result<T, Error>> {
    // `None`: the last page was fetched. `Some(None)`: the first page comes next.
    let pages = stream::try_unfold(Some(None), move |next: Option<Option<String>>| {
        let (client, call) = (client.clone(), call.clone());
        async move {
            let Some(cursor) = next else { return Ok(None) };
            let page: Page<T> = fetch(&client, call?, cursor.as_deref()).await?;
            let entries = stream::iter(page.data.into_iter().map(Ok));
            Ok(Some((entries, page.next_cursor.map(Some))))
        }
    });
    pages.try_flatten().boxed()
}

async fn fetch<T: DeserializeOwned>(
    client: &Client,
    call: Call,
    cursor: Option<&str>,
) -> Result<Page<T>, Error> {
    let call = match cursor {
        Some(cursor) => call.query("cursor", cursor),
        None => call,
    };
    client.call(&call).await
}

impl<T: DeserializeOwned + Send + 'static> futures_util::Stream for List<T> {
    type Item = Result<T, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().entries().poll_next_unpin(context)
    }
}

/// A list holds no entry by value that could move: the stream is boxed.
impl<T> Unpin for List<T> {}
