//! The measured server: one process, or several that share a database.

use std::path::Path;

use super::process::{Server, new_key};
use super::system::Usage;
use postrider_cli::exit::Failure;

/// One server or the nodes of a cluster, with the same admin key.
pub(crate) struct Nodes {
    all: Vec<Server>,
    pub(crate) key: String,
}

impl Nodes {
    /// Starts this many nodes, each with its own directory below this one, and waits until each has
    /// its share of the shards.
    pub(crate) fn start(dir: &Path, store: Option<&str>, count: u64) -> Result<Nodes, Failure> {
        let mut nodes = Nodes { all: Vec::new(), key: new_key()? };
        let first = dir.join("node1");
        for n in 1..=count {
            let data_dir = dir.join(format!("node{n}"));
            if n > 1 {
                std::fs::create_dir_all(&data_dir)?;
                std::fs::copy(first.join("keyring"), data_dir.join("keyring"))?;
            }
            nodes.all.push(Server::start(&data_dir, store, &nodes.key)?);
        }
        for server in &mut nodes.all {
            if store.is_some() {
                server.wait_for_share(count)?;
            }
            server.hear_no_more();
        }
        Ok(nodes)
    }

    pub(crate) fn addresses(&self) -> Vec<String> {
        self.all.iter().map(|server| server.address.clone()).collect()
    }

    /// The address of one node.
    pub(crate) fn address(&self) -> Result<&str, Failure> {
        let first = self.all.first().ok_or_else(|| Failure::failed("there is no server"))?;
        Ok(&first.address)
    }

    /// The usage of all nodes so far, and the peak memory of one of them.
    pub(crate) fn usage(&self) -> Usage {
        self.all.iter().map(|server| Usage::of(server.id())).fold(Usage::default(), |all, one| {
            Usage {
                cpu_us: all.cpu_us + one.cpu_us,
                peak_bytes: all.peak_bytes.max(one.peak_bytes),
            }
        })
    }

    /// Shuts all nodes down in order.
    pub(crate) fn stop(self) -> Result<(), Failure> {
        self.all.into_iter().try_for_each(Server::stop)
    }
}
