//! Copies the documents, and what they link to, to a folder from which mdBook makes a book.
//!
//! Pages of `docs/` are at its top, other files of the repository in `repository/`. A `README.md` becomes `index.md`,
//! because mdBook gives it that address. A source file becomes a text file, which browsers show.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Copies everything; how many pages there are.
pub(super) fn stage(root: &Path, staged: &Path) -> Result<usize> {
    if staged.exists() {
        fs::remove_dir_all(staged)?;
    }
    let mut files = BTreeMap::new();
    let mut open: VecDeque<String> = below(root, "docs")?.into();
    while let Some(path) = open.pop_front() {
        if files.contains_key(&path) {
            continue;
        }
        let source = root.join(&path);
        if source.is_dir() {
            files.insert(path.clone(), folder_page(root, &path)?.into_bytes());
        } else if path.ends_with(".md") {
            let text = fs::read_to_string(&source).with_context(|| path.clone())?;
            let is_folder = |path: &str| root.join(path).is_dir();
            let (text, linked) = rewritten(&path, &text, is_folder);
            files.insert(path, text.into_bytes());
            open.extend(linked);
        } else {
            files.insert(path.clone(), fs::read(&source).with_context(|| path.clone())?);
        }
    }
    let is_page = |path: &&String| placed(path, root.join(path).is_dir()).ends_with(".md");
    let others: Vec<&String> =
        files.keys().filter(|path| !path.starts_with("docs/")).filter(is_page).collect();
    let mut summary = "\n# The repository\n\n".to_owned();
    for path in &others {
        summary += &format!("- [{path}]({})\n", placed(path, root.join(path).is_dir()));
    }
    let pages = files.keys().filter(is_page).count() - 1;
    for (path, mut content) in files.clone() {
        if path == "docs/SUMMARY.md" {
            content.extend(summary.as_bytes());
        }
        let target = staged.join(placed(&path, root.join(&path).is_dir()));
        fs::create_dir_all(target.parent().unwrap_or(staged))?;
        fs::write(&target, content).with_context(|| target.display().to_string())?;
    }
    Ok(pages)
}

/// All files below a folder of the repository.
fn below(root: &Path, folder: &str) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join(folder)).with_context(|| folder.to_owned())? {
        let entry = entry?;
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            files.extend(below(root, &path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The page of a folder: the names of what is in it.
fn folder_page(root: &Path, folder: &str) -> Result<String> {
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(root.join(folder))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let names: Vec<String> = names.iter().map(|name| format!("- `{name}`\n")).collect();
    Ok(format!("# {folder}\n\nA folder of the repository:\n\n{}", names.concat()))
}

/// Where a file of the repository is in the book.
fn placed(path: &str, is_folder: bool) -> String {
    let (path, is_ours) = match path.strip_prefix("docs/") {
        Some(path) => (path.to_owned(), true),
        None => (format!("repository/{path}"), false),
    };
    if is_folder {
        return format!("{path}/index.md");
    }
    match path.strip_suffix("README.md") {
        Some(folder) => format!("{folder}index.md"),
        None if is_ours || path.ends_with(".md") => path,
        None => format!("{path}.txt"),
    }
}

/// The page with links to where the files are in the book, and the files that it links to.
fn rewritten(path: &str, text: &str, is_folder: impl Fn(&str) -> bool) -> (String, Vec<String>) {
    let mut linked = Vec::new();
    let mut in_code = false;
    let mut page = String::new();
    let from = placed(path, false);
    let mut moved = |target: &str| {
        if target.contains("://") || target.starts_with(['#', '/']) || target.starts_with("mailto:")
        {
            return target.to_owned();
        }
        let (file, heading) = match target.split_once('#') {
            Some((file, heading)) => (file, format!("#{heading}")),
            None => (target, String::new()),
        };
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let Some(file) = crate::tidy::resolve(folder, file) else { return target.to_owned() };
        let there = placed(&file, is_folder(&file));
        linked.push(file);
        format!("{}{heading}", relative(&from, &there))
    };
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        let line = match in_code || fence {
            true => line.to_owned(),
            false => with_links(line, &mut moved),
        };
        page += &line;
        page.push('\n');
    }
    (page, linked)
}

/// The line with the targets of its links replaced, outside of code.
fn with_links(line: &str, moved: &mut impl FnMut(&str) -> String) -> String {
    if line.starts_with('[')
        && let Some((name, target)) = line.split_once("]: ")
    {
        return format!("{name}]: {}", moved(target.trim()));
    }
    let mut pieces = Vec::new();
    for (n, piece) in line.split('`').enumerate() {
        let mut parts = piece.split("](");
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part.find([')', ' ']).unwrap_or(part.len());
            let (target, rest) = part.split_at(end);
            // Every other piece is code.
            let target = if n % 2 == 0 { moved(target) } else { target.to_owned() };
            text += &format!("]({target}{rest}");
        }
        pieces.push(text);
    }
    pieces.join("`")
}

/// The link from one file of the book to another.
fn relative(from: &str, to: &str) -> String {
    let folders: Vec<&str> = from.split('/').collect();
    let folders = folders.get(..folders.len().saturating_sub(1)).unwrap_or_default();
    let parts: Vec<&str> = to.split('/').collect();
    let shared = folders.iter().zip(&parts).take_while(|(a, b)| a == b).count();
    let shared = shared.min(parts.len().saturating_sub(1));
    let up = std::iter::repeat_n("..", folders.len() - shared);
    up.chain(parts.into_iter().skip(shared)).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_where_the_files_are_in_the_book() {
        let page = "[a](../README.md#top) `[b](../x.md)` [`c`](../../crates/a/src/b.rs) ![d](../images/e.png)\n\
                    [f](https://example.com/README.md) [g](#here) [h](../../examples)\n\
                    ```sh\n[i](../x.md)\n```\n[j]: ../../README.md\n";
        let (page, linked) = rewritten("docs/guide/page.md", page, |path| path == "examples");
        assert_eq!(
            page,
            "[a](../index.md#top) `[b](../x.md)` [`c`](../repository/crates/a/src/b.rs.txt) \
             ![d](../images/e.png)\n\
             [f](https://example.com/README.md) [g](#here) [h](../repository/examples/index.md)\n\
             ```sh\n[i](../x.md)\n```\n[j]: ../repository/index.md\n"
        );
        let expected =
            ["docs/README.md", "crates/a/src/b.rs", "docs/images/e.png", "examples", "README.md"];
        assert_eq!(linked, expected);
    }

    #[test]
    fn link_between_files_of_the_book_is_relative() {
        for (from, to, link) in [
            ("a.md", "b.md", "b.md"),
            ("guide/a.md", "guide/b.md", "b.md"),
            ("guide/a.md", "index.md", "../index.md"),
            ("repository/clients/index.md", "repository/clients/go/index.md", "go/index.md"),
            ("repository/index.md", "images/a.png", "../images/a.png"),
        ] {
            assert_eq!(relative(from, to), link);
        }
    }
}
