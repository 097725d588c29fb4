//! Links in our documents to our own files and headings must resolve.

use super::{Finding, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(&[".md"]) {
        for (line, target) in links(text) {
            if let Err(message) = follow(tree, path, &target) {
                findings.push(Finding::new(path, line, message));
            }
        }
    }
    findings
}

/// How many links lead to files and headings of ours.
pub(super) fn count(tree: &Tree) -> usize {
    let texts = tree.ending(&[".md"]);
    texts.flat_map(|(_, text)| links(text)).filter(|(_, target)| !is_elsewhere(target)).count()
}

/// Whether the target is not of this repository.
fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

fn follow(tree: &Tree, from: &str, target: &str) -> Result<(), String> {
    if is_elsewhere(target) {
        return Ok(());
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let path = match file {
        "" => from.to_owned(),
        _ if file.starts_with('/') => return Err(format!("the link {target} is not relative")),
        _ => resolve(folder, file).ok_or(format!("the link {target} leaves the repository"))?,
    };
    if !tree.has(&path) {
        return Err(format!("the link {target} leads nowhere"));
    }
    let is_heading = |text: &str| headings(text).iter().any(|anchor| anchor == heading);
    if !heading.is_empty() && path.ends_with(".md") && !tree.text(&path).is_some_and(is_heading) {
        return Err(format!("the link {target}: {path} has no such heading"));
    }
    Ok(())
}

/// The path of a file that a document in `folder` links to.
pub(crate) fn resolve(folder: &str, file: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The lines outside of code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        (!in_code && !fence).then_some((index + 1, line))
    })
}

/// The targets of `[text](target)` and `[name]: target`, outside of code.
pub(super) fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in prose(text) {
        let plain: String = line.split('`').step_by(2).collect();
        for piece in plain.split("](").skip(1) {
            let target = piece.split([')', ' ']).next().unwrap_or_default();
            links.push((number, target.to_owned()));
        }
        if plain.starts_with('[')
            && let Some((_, target)) = plain.split_once("]: ")
        {
            links.push((number, target.trim().to_owned()));
        }
    }
    links
}

/// The anchors of the headings: lowercase, blanks to hyphens, without punctuation.
fn headings(text: &str) -> Vec<String> {
    let anchor = |heading: &str| {
        heading
            .trim_start_matches('#')
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    };
    prose(text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| anchor(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn links_to_files_folders_and_headings_lead_there() {
        let page = "# The top, first!\n[a](../a.md) [b](b.md#the-rest) ![c](../img)\n\
                    [d](#the-top-first) [e](https://example.com/x) [f][g]\n\n[g]: ../a.md\n";
        let files = [
            ("docs/page.md", page),
            ("docs/b.md", "## The `rest`\n"),
            ("a.md", ""),
            ("img/x.svg", ""),
        ];
        assert_eq!(found(check, &files), [""; 0]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let page =
            "[a](missing.md)\n[b](b.md#nothing)\n[c](../../out.md)\n[d](/b.md)\n\n[e]: gone.md\n";
        let files = [("docs/page.md", page), ("docs/b.md", "# Something\n")];
        assert_eq!(
            found(check, &files),
            [
                "docs/page.md:1: the link missing.md leads nowhere",
                "docs/page.md:2: the link b.md#nothing: docs/b.md has no such heading",
                "docs/page.md:3: the link ../../out.md leaves the repository",
                "docs/page.md:4: the link /b.md is not relative",
                "docs/page.md:6: the link gone.md leads nowhere",
            ]
        );
    }

    #[test]
    fn code_is_not_prose() {
        let page = "`[a](missing.md)`\n```\n[a](missing.md)\n# no heading\n```\n[b](#no-heading)\n";
        let found = found(check, &[("page.md", page)]);
        assert_eq!(found, ["page.md:6: the link #no-heading: page.md has no such heading"]);
    }
}
