//! A receiver whose behaviour a test turns while it runs.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use super::{Deadline, PATIENCE};

/// One request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Arrived {
    pub(crate) webhook_id: String,
}

#[derive(Default)]
struct State {
    arrived: Vec<Arrived>,
    /// While set, requests are taken and not answered.
    held: bool,
}

struct Shared {
    status: AtomicU16,
    state: Mutex<State>,
    changed: Condvar,
}

pub(crate) struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Receiver {
    /// Listens on a free port and answers with this status.
    pub(crate) fn start(status: u16) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            status: AtomicU16::new(status),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let for_connections = Arc::clone(&shared);
        drop(thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&for_connections);
                // A connection that breaks is the sender's business.
                drop(thread::spawn(move || connection(stream, &shared)));
            }
        }));
        Receiver { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Answers with this status from now on.
    pub(crate) fn answer(&self, status: u16) {
        self.shared.status.store(status, Ordering::SeqCst);
    }

    /// Takes requests without answering them, or goes on.
    pub(crate) fn hold(&self, held: bool) {
        self.shared.state.lock().unwrap().held = held;
        self.shared.changed.notify_all();
    }

    /// Everything that arrived so far.
    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        self.shared.state.lock().unwrap().arrived.clone()
    }

    /// Waits until so many requests have arrived.
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Arrived> {
        let deadline = Deadline::new();
        let mut state = self.shared.state.lock().unwrap();
        while state.arrived.len() < count {
            let arrived = state.arrived.len();
            assert!(!deadline.has_passed(), "only {arrived} of {count} requests arrived");
            state = self.shared.changed.wait_timeout(state, PATIENCE).unwrap().0;
        }
        state.arrived.clone()
    }
}

fn connection(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        let mut length = 0;
        let mut webhook_id = String::new();
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let header = line.trim_end();
            if header.is_empty() {
                break;
            }
            if let Some((name, value)) = header.split_once(':') {
                match name.to_ascii_lowercase().as_str() {
                    "content-length" => length = value.trim().parse().map_err(io::Error::other)?,
                    "webhook-id" => value.trim().clone_into(&mut webhook_id),
                    _ => {}
                }
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let mut state = shared.state.lock().unwrap();
        state.arrived.push(Arrived { webhook_id });
        shared.changed.notify_all();
        while state.held {
            state = shared.changed.wait(state).unwrap();
        }
        drop(state);
        let status = shared.status.load(Ordering::SeqCst);
        writer.write_all(
            format!("HTTP/1.1 {status} x\r\ncontent-length: 6\r\n\r\nanswer").as_bytes(),
        )?;
    }
}
