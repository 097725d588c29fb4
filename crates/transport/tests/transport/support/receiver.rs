//! A receiver made of raw sockets: the test decides what it does with a connection.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// Listens on loopback; stops on drop.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    accepting: AbortHandle,
}

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) line: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Receiver {
    /// Runs `serve` on each connection, with its number from 1.
    pub(crate) async fn start<F, S>(serve: S) -> Self
    where
        S: Fn(usize, TcpStream) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = counter.fetch_add(1, SeqCst) + 1;
                tokio::spawn(serve(number, stream));
            }
        });
        Receiver { address, connections, accepting: accepting.abort_handle() }
    }

    /// Answers every request with these bytes and keeps the connection open.
    pub(crate) async fn answering(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes: Arc<[u8]> = bytes.into().into();
        Receiver::responding(move |_| bytes.to_vec()).await
    }

    /// Answers every request with the result of `respond` and keeps the connection open.
    pub(crate) async fn responding<R>(respond: R) -> Self
    where
        R: Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync + 'static,
    {
        let respond = Arc::new(respond);
        Receiver::start(move |_, mut stream| {
            let respond = Arc::clone(&respond);
            async move {
                while let Some(request) = read_request(&mut stream).await {
                    if stream.write_all(&respond(&request)).await.is_err() {
                        break;
                    }
                }
            }
        })
        .await
    }

    /// Reads each request, writes these bytes once, and closes.
    pub(crate) async fn answering_once(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes: Arc<[u8]> = bytes.into().into();
        Receiver::start(move |_, mut stream| {
            let bytes = Arc::clone(&bytes);
            async move {
                if read_request(&mut stream).await.is_some()
                    && stream.write_all(&bytes).await.is_ok()
                {
                    // Closing with unread bytes would reset the connection.
                    drop(stream.shutdown().await);
                    drain(&mut stream).await;
                }
            }
        })
        .await
    }

    /// How many connections there were.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Reads a request with its body; `None` if the connection ends.
pub(crate) async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<ReceivedRequest> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let text = String::from_utf8(head).unwrap();
    let mut lines = text.split("\r\n");
    let line = lines.next().unwrap().to_owned();
    let headers: HashMap<_, _> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let length = headers.get("content-length").map_or(0, |value| value.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(ReceivedRequest { line, headers, body })
}

/// Reads until the other side closes; returns the number of bytes.
pub(crate) async fn drain(stream: &mut (impl AsyncRead + Unpin)) -> usize {
    let mut bytes = 0;
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        bytes += read;
    }
    bytes
}
