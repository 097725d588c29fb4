//! Links in documents to functions and tests must resolve, and every rule of the contract links to
//! both.

use super::links::resolve;
use super::source::has_phrase;
use super::{Finding, Tree};

const CONTRACT: &str = "docs/contract.md";
/// The header of a table of rules.
const RULES: &str = "| rule | decided by | shown by |";
const KEYWORDS: [&str; 6] = ["fn", "struct", "enum", "const", "trait", "type"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(&[".md"]) {
        for (index, line) in text.lines().enumerate() {
            for link in symbols(line) {
                if let Err(message) = link.follow(tree, path) {
                    findings.push(Finding::new(path, index + 1, message));
                }
            }
        }
    }
    findings.extend(rules_without_proof(tree));
    findings
}

/// A link such as ``[`name`](../path/to/file.rs)``.
struct Symbol<'a> {
    name: &'a str,
    file: &'a str,
}

impl Symbol<'_> {
    fn follow(&self, tree: &Tree, from: &str) -> Result<(), String> {
        match self.source(tree, from) {
            // Another rule reports a link to a missing file.
            None => Ok(()),
            Some(text) if definition(text, self.name).is_some() => Ok(()),
            Some(_) => Err(format!("{} does not define {}", self.file, self.name)),
        }
    }

    fn source<'t>(&self, tree: &'t Tree, from: &str) -> Option<&'t str> {
        let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
        tree.text(&resolve(folder, self.file)?)
    }

    /// Whether it has the attribute of a test.
    fn is_test(&self, tree: &Tree, from: &str) -> bool {
        let Some(text) = self.source(tree, from) else { return false };
        let Some(line) = definition(text, self.name) else { return false };
        let lines: Vec<&str> = text.lines().take(line).collect();
        let above = lines.iter().rev().map(|line| line.trim());
        let mut above = above.take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        above.any(|line| line.starts_with("#[") && line.contains("test")) || in_proptest(text, line)
    }
}

/// Property tests are inside a macro; some of them inherit its attribute.
fn in_proptest(text: &str, line: usize) -> bool {
    text.lines().take(line).any(|line| line.trim_start().starts_with("proptest!"))
}

/// The links to symbols in a line.
fn symbols(line: &str) -> impl Iterator<Item = Symbol<'_>> {
    line.split("[`").skip(1).filter_map(|piece| {
        let (name, rest) = piece.split_once("`](")?;
        let (file, _) = rest.split_once(')')?;
        file.ends_with(".rs").then_some(Symbol { name, file })
    })
}

/// The line, from 0, in which the file defines the name.
fn definition(text: &str, name: &str) -> Option<usize> {
    text.lines().position(|line| {
        KEYWORDS.iter().any(|keyword| has_phrase(line, &format!("{keyword} {name}")))
    })
}

/// Rows of the contract's tables without a link to code or to a test.
fn rules_without_proof(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_rules = false;
    for (index, line) in tree.text(CONTRACT).unwrap_or_default().lines().enumerate() {
        in_rules = line.starts_with(RULES) || (in_rules && line.starts_with('|'));
        if !in_rules || line.starts_with(RULES) || line.starts_with("|---") {
            continue;
        }
        let cells: Vec<&str> = line.split(" | ").collect();
        let [_, code, proof] = cells[..] else {
            findings.push(Finding::new(CONTRACT, index + 1, "a rule has three cells"));
            continue;
        };
        if symbols(code).next().is_none() {
            findings.push(Finding::new(CONTRACT, index + 1, "the rule names no code"));
        }
        if !symbols(proof).any(|symbol| symbol.is_test(tree, CONTRACT)) {
            findings.push(Finding::new(CONTRACT, index + 1, "the rule names no test"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    const CODE: &str = "fn decide() {}\n\n#[test]\nfn it_decides() {}\n";

    #[test]
    fn a_rule_that_names_its_function_and_its_test_passes() {
        let text = format!(
            "{RULES}\n|---|---|---|\n| It decides | [`decide`](../a.rs) | [`it_decides`](../a.rs) |\n"
        );
        assert_eq!(found(check, &[(CONTRACT, &text), ("a.rs", CODE)]), [""; 0]);
    }

    #[test]
    fn a_missing_symbol_and_a_rule_without_proof_are_found() {
        let text = format!(
            "{RULES}\n|---|---|---|\n| A | [`gone`](../a.rs) | [`decide`](../a.rs) |\n| B | - | [`it_decides`](../a.rs) |\n"
        );
        assert_eq!(
            found(check, &[(CONTRACT, &text), ("a.rs", CODE)]),
            [
                "docs/contract.md:3: ../a.rs does not define gone",
                "docs/contract.md:3: the rule names no test",
                "docs/contract.md:4: the rule names no code",
            ]
        );
    }
}
