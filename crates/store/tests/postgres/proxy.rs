//! A proxy in front of the server that can cut a connection exactly at a COMMIT.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Where the connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Before the server receives the COMMIT: it did not happen.
    Before,
    /// After the server has acknowledged the COMMIT, before the client receives that.
    After,
    /// While the COMMIT is on its way: its outcome is open.
    Between,
}

#[derive(Clone)]
pub(crate) struct Proxy {
    port: u16,
    plan: Arc<Mutex<Option<Cut>>>,
}

impl Proxy {
    pub(crate) async fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let plan = Arc::new(Mutex::new(None));
        let proxy = Proxy { port, plan };
        let accepting = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(there) = TcpStream::connect(("127.0.0.1", server)).await else { continue };
                tokio::spawn(accepting.clone().carry(client, there));
            }
        });
        proxy
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postrider@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    /// Cuts the next connection that commits.
    pub(crate) fn cut_next(&self, cut: Cut) {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = Some(cut);
    }

    /// Whether the planned cut has happened.
    pub(crate) fn has_cut(&self) -> bool {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn take_plan(&self) -> Option<Cut> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Forwards messages in both directions until one side closes or the planned cut is due.
    async fn carry(self, client: TcpStream, server: TcpStream) {
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        let ((from_client, to_client), (from_server, to_server)) =
            (client.into_split(), server.into_split());
        let hides_commit = Arc::new(Mutex::new(false));
        // Dropping the halves closes both connections.
        tokio::select! {
            () = self.out(from_client, to_server, Arc::clone(&hides_commit)) => {}
            () = back(from_server, to_client, hides_commit) => {}
        }
    }

    async fn out(
        &self,
        mut client: OwnedReadHalf,
        mut server: OwnedWriteHalf,
        hides_commit: Arc<Mutex<bool>>,
    ) {
        // The first message has no type byte.
        let Ok(length) = client.read_i32().await else { return };
        let mut body = vec![0; usize::try_from(length - 4).unwrap()];
        let Ok(_) = client.read_exact(&mut body).await else { return };
        server.write_i32(length).await.unwrap();
        server.write_all(&body).await.unwrap();
        while let Some(message) = message(&mut client).await {
            let cut = (message[0] == b'Q' && message[5..] == *b"COMMIT\0")
                .then(|| self.take_plan())
                .flatten();
            match cut {
                Some(Cut::Before) => return,
                Some(Cut::After) => {
                    *hides_commit.lock().unwrap_or_else(PoisonError::into_inner) = true;
                }
                Some(Cut::Between) | None => {}
            }
            if server.write_all(&message).await.is_err() || cut == Some(Cut::Between) {
                return;
            }
        }
    }
}

async fn back(
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    hides_commit: Arc<Mutex<bool>>,
) {
    while let Some(message) = message(&mut server).await {
        let is_commit = message[0] == b'C' && message[5..] == *b"COMMIT\0";
        if is_commit && *hides_commit.lock().unwrap_or_else(PoisonError::into_inner) {
            return;
        }
        if client.write_all(&message).await.is_err() {
            return;
        }
    }
}

/// Reads one message: its type, its length and its body.
async fn message(from: &mut OwnedReadHalf) -> Option<Vec<u8>> {
    let mut message = vec![0; 5];
    from.read_exact(&mut message).await.ok()?;
    let length = u32::from_be_bytes(message[1..5].try_into().unwrap());
    message.resize(usize::try_from(length).unwrap() + 1, 0);
    from.read_exact(&mut message[5..]).await.ok()?;
    Some(message)
}
