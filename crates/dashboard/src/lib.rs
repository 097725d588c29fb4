//! The files of the web page, inside the binary. The page is a client of the public API: it has no route
//! of its own but these files.

/// A file of the page.
#[derive(Debug, Clone, Copy)]
pub struct File {
    /// The path from the top of the page, without a slash at the front.
    pub path: &'static str,
    /// The `content-type` to send it with.
    pub content_type: &'static str,
    /// Changes when the file does; with its quotation marks.
    pub etag: &'static str,
    /// Whether its name has a hash of what is in it: it never changes.
    pub has_hash: bool,
    /// The contents of the file.
    pub bytes: &'static [u8],
    /// The contents compressed by gzip.
    pub gzip: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// The file at a path; that of the page itself at an empty one.
pub fn file(path: &str) -> Option<&'static File> {
    let path = if path.is_empty() { "index.html" } else { path };
    FILES.iter().find(|file| file.path == path)
}
