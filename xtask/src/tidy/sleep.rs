//! Tests wait for a condition, never for time to pass.

use super::source::without_comment;
use super::{Finding, Tree};

/// Files and folders whose tests may sleep, and why.
const ALLOWED: &[(&str, &str)] = &[
    ("xtask/src/tidy/sleep.rs", "writes the forbidden words down"),
    ("crates/engine/tests/", "runs on tokio's paused clock: a sleep takes no time"),
];

/// Calls that sleep, in Rust and in the dashboard's tests.
const CALLS: &[&str] = &["sleep(", "sleep_ms(", "waitForTimeout("];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(&[".rs", ".ts", ".js"]) {
        if ALLOWED.iter().any(|(allowed, _)| path.starts_with(allowed)) {
            continue;
        }
        let mut in_tests = is_test_file(path);
        for (index, line) in text.lines().enumerate() {
            in_tests |= line.starts_with("#[cfg(test)]");
            if in_tests && calls_sleep(without_comment(line)) {
                let message =
                    "a test must not sleep: wait for the thing itself, or use virtual time";
                findings.push(Finding::new(path, index + 1, message));
            }
        }
    }
    findings
}

fn is_test_file(path: &str) -> bool {
    path.contains("/tests/")
        || path.ends_with("/tests.rs")
        || [".test.ts", ".spec.ts", ".test.js", ".spec.js"].iter().any(|end| path.ends_with(end))
}

fn calls_sleep(line: &str) -> bool {
    CALLS.iter().any(|call| {
        line.match_indices(call).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            !before.is_some_and(|character| character.is_alphanumeric() || character == '_')
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn tests_that_sleep_are_found_wherever_tests_stand() {
        let files = [
            ("c/tests/a.rs", "fn t() {\n    thread::sleep(second);\n}\n"),
            (
                "c/src/b.rs",
                "fn f() { sleep(1) }\n#[cfg(test)]\nmod tests {\n    sleep(1).await\n}\n",
            ),
            ("dashboard/a.spec.ts", "await page.waitForTimeout(500)\n"),
            ("c/src/fine.rs", "fn f() { clock.sleep(1) }\n"),
            ("c/tests/fine.rs", "fn nobody_may_sleep() {}\nlet x = no_sleep(1); // sleep(1)\n"),
        ];
        let found = found(check, &files);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("c/src/b.rs:4: a test must not sleep"));
        assert!(found[1].starts_with("c/tests/a.rs:2: "));
        assert!(found[2].starts_with("dashboard/a.spec.ts:1: "));
    }
}
