//! What is printed at the start: where the server is, its key, and what to try next.

use std::net::SocketAddr;
use std::path::Path;

use crate::output::{Colour, Output, line};

/// What became of the admin key at this start.
pub(super) enum AdminKey<'a> {
    /// It was made just now.
    Created {
        /// The key. This is the one time that it is shown.
        key: &'a str,
        /// Where it was written.
        path: &'a Path,
    },
    /// It is the operator's own.
    Given,
    /// It was made at an earlier start.
    Exists {
        /// Where it was written.
        path: &'a Path,
    },
}

/// Prints it. Where nobody sits at a terminal, the new key is all there is to say.
pub(super) fn print(
    output: Output,
    is_terminal: bool,
    address: SocketAddr,
    key: &AdminKey<'_>,
    dev: bool,
) -> std::io::Result<()> {
    if !is_terminal {
        return match key {
            AdminKey::Created { key, .. } => line(&format!("admin key: {key}")),
            AdminKey::Given | AdminKey::Exists { .. } => Ok(()),
        };
    }
    let bold = |text: &str| output.paint(Colour::Bold, text);
    let key = match key {
        AdminKey::Created { key, path } => {
            format!("{}  (shown once; kept in {})", bold(key), path.display())
        }
        AdminKey::Given => "yours, by POSTRIDER_ADMIN_KEY".to_owned(),
        AdminKey::Exists { path } => format!("in {}", path.display()),
    };
    let server = format!("http://{address}");
    let hook = if dev { "http://127.0.0.1:9000/" } else { "https://hooks.example.com/" };
    line(&format!(
        "\n  {} {}\n\n  API        {}\n  admin key  {key}\n\n  Try next, in another terminal:\n    \
         postrider subscriptions create {hook} 'task.*' --server {server}\n    \
         postrider send task.updated '{{\"status\": \"CUR\"}}' --server {server}\n",
        bold("postrider"),
        env!("CARGO_PKG_VERSION"),
        bold(&server),
    ))
}
