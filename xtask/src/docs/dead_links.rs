//! Finds links in the pages of a book that lead to no file. Headings are checked in the documents themselves, by `tidy`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

/// Pages that mdBook makes for itself: all others in one, the list of chapters, and what a web server shows where
/// there is no page.
const OWN: [&str; 3] = ["print.html", "toc.html", "404.html"];

pub(super) struct Checked {
    pub(super) links: usize,
    pub(super) dead: Vec<String>,
}

/// Checks the links of all pages in this folder.
pub(super) fn check(book: &Path) -> Result<Checked> {
    let mut pages = BTreeMap::new();
    let mut folders = vec![book.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "html") {
                let text = fs::read_to_string(&path)?;
                pages.insert(path, text);
            }
        }
    }
    Ok(check_pages(&pages, Path::exists))
}

/// Checks the links of these pages, beside which there may be other files.
fn check_pages(pages: &BTreeMap<PathBuf, String>, exists: impl Fn(&Path) -> bool) -> Checked {
    let mut checked = Checked { links: 0, dead: Vec::new() };
    let is_own = |page: &Path| OWN.iter().any(|own| page.ends_with(own));
    for (page, text) in pages.iter().filter(|(page, _)| !is_own(page)) {
        for target in targets(text) {
            checked.links += 1;
            if !leads_somewhere(page, target, pages, &exists) {
                checked.dead.push(format!("{}: {target}", page.display()));
            }
        }
    }
    checked
}

/// What a page links to in the book, and what it loads.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let marks = ["href=\"", "src=\""];
    let all = marks.into_iter().flat_map(|mark| text.split(mark).skip(1));
    let all = all.filter_map(|rest| rest.split('"').next());
    all.filter(|target| !target.is_empty() && !target.contains(':') && !target.starts_with("//"))
}

fn leads_somewhere(
    page: &Path,
    target: &str,
    pages: &BTreeMap<PathBuf, String>,
    exists: &impl Fn(&Path) -> bool,
) -> bool {
    let file = target.split(['#', '?']).next().unwrap_or_default();
    let folder = page.parent().unwrap_or(page);
    let path = if file.is_empty() { page.to_owned() } else { normal(&folder.join(file)) };
    pages.contains_key(&path) || exists(&path)
}

/// The path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        if part.as_os_str() == ".." {
            normal.pop();
        } else {
            normal.push(part);
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_missing_files_are_found() {
        let page = "<a href=\"b.html#there\"></a><a href=\"../a/b.html\"></a><a href=\"gone.html#there\"></a>\
                    <a href=\"https://example.com/\"></a><img src=\"no.png\"><a href=\"#top\"></a>";
        let pages = [("a/a.html", page), ("a/b.html", "<h1 id=\"there\"><img src=\"yes.png\">")];
        let pages = pages.map(|(path, text)| (path.into(), text.to_owned())).into();
        let checked = check_pages(&pages, |path| path.ends_with("yes.png"));
        assert_eq!(checked.links, 6);
        assert_eq!(checked.dead, ["a/a.html: gone.html#there", "a/a.html: no.png"]);
    }
}
