//! Parses the lists of planted bugs in `crates/simulation/planted/`, and applies their changes to a
//! file.
//!
//! The lists are a small part of TOML: `[[bug]]` with `name` and `breaks`, `[[bug.change]]` with
//! `file`, `find` and `replace`. A text is in double quotes on one line, or between lines of three
//! single quotes. Everything else is an error.

use std::ops::Range;

/// The folder of the lists.
pub(crate) const FOLDER: &str = "crates/simulation/planted/";
/// In `replace`: whether this bug is active now.
const SWITCH: &str = "planted!()";

/// A bug that the simulation must catch.
#[derive(Debug, Default)]
pub(crate) struct Bug {
    pub(crate) name: String,
    /// What it breaks, in one sentence.
    pub(crate) breaks: String,
    pub(crate) changes: Vec<Change>,
    /// The line in which it begins, from 1.
    pub(crate) line: usize,
}

/// One replacement in one file.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) file: String,
    pub(crate) find: String,
    pub(crate) replace: String,
    /// The line in which it begins, from 1.
    pub(crate) line: usize,
}

/// An error in a list, with its line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) line: usize,
    pub(crate) message: String,
}

fn mistake(line: usize, message: impl Into<String>) -> Mistake {
    Mistake { line, message: message.into() }
}

/// Parses a list.
pub(crate) fn parse(text: &str) -> Result<Vec<Bug>, Mistake> {
    let mut bugs: Vec<Bug> = Vec::new();
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    while let Some((number, line)) = lines.next() {
        match line {
            "" => {}
            "[[bug]]" => bugs.push(Bug { line: number, ..Bug::default() }),
            "[[bug.change]]" => {
                let bug = bugs.last_mut().ok_or_else(|| mistake(number, "a change of no bug"))?;
                bug.changes.push(Change { line: number, ..Change::default() });
            }
            comment if comment.starts_with('#') => {}
            _ => {
                let (key, value) = line
                    .split_once(" = ")
                    .ok_or_else(|| mistake(number, format!("cannot parse {line:?}")))?;
                let value = if value == "'''" {
                    let inside = lines.by_ref().map(|(_, line)| line);
                    inside
                        .take_while(|line| *line != "'''")
                        .map(|line| line.to_owned() + "\n")
                        .collect()
                } else {
                    let inside = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
                    inside.ok_or_else(|| mistake(number, "the text has no quotes"))?.to_owned()
                };
                let bug = bugs.last_mut().ok_or_else(|| mistake(number, "a key of no bug"))?;
                *field(bug, key)
                    .ok_or_else(|| mistake(number, format!("no key {key:?} here")))? = value;
            }
        }
    }
    match bugs.iter().find_map(incomplete) {
        Some(mistake) => Err(mistake),
        None => Ok(bugs),
    }
}

/// The field for a key: of the bug before its first change, of the newest change after that.
fn field<'a>(bug: &'a mut Bug, key: &str) -> Option<&'a mut String> {
    match (key, bug.changes.last_mut()) {
        ("name", None) => Some(&mut bug.name),
        ("breaks", None) => Some(&mut bug.breaks),
        ("file", Some(change)) => Some(&mut change.file),
        ("find", Some(change)) => Some(&mut change.find),
        ("replace", Some(change)) => Some(&mut change.replace),
        _ => None,
    }
}

fn incomplete(bug: &Bug) -> Option<Mistake> {
    let is_name = bug.name.starts_with(|c: char| c.is_ascii_uppercase())
        && bug.name.chars().all(|c| c.is_ascii_alphanumeric());
    if !is_name {
        return Some(mistake(bug.line, "the bug's name is not one like `ProbeTooSoon`"));
    }
    if !bug.breaks.ends_with('.') {
        return Some(mistake(bug.line, format!("{} does not say what it breaks", bug.name)));
    }
    if bug.changes.is_empty() {
        return Some(mistake(bug.line, format!("{} changes nothing", bug.name)));
    }
    bug.changes.iter().find_map(|change| {
        let message = if change.file.is_empty() || change.find.trim().is_empty() {
            "the change has no `file` or no `find`"
        } else if !change.replace.contains(SWITCH) {
            "`replace` has no `planted!()`: the bug could not be switched off"
        } else {
            return None;
        };
        Some(mistake(change.line, message))
    })
}

/// The changes of all bugs in one file, each with the name of its bug.
pub(crate) fn changes_in<'a>(bugs: &'a [Bug], file: &str) -> Vec<(&'a str, &'a Change)> {
    let mut found = Vec::new();
    for bug in bugs {
        let here = bug.changes.iter().filter(|change| change.file == file);
        found.extend(here.map(|change| (bug.name.as_str(), change)));
    }
    found
}

/// The file with all changes applied, or the changes that do not fit.
pub(crate) fn apply(
    file: &str,
    text: &str,
    changes: &[(&str, &Change)],
) -> Result<String, Vec<Mistake>> {
    let mut mistakes = Vec::new();
    let mut places: Vec<(Range<usize>, &str, &Change)> = Vec::new();
    for &(bug, change) in changes {
        let mut found = text.match_indices(&change.find);
        match (found.next(), found.count()) {
            (Some((at, _)), 0) => places.push((at..at + change.find.len(), bug, change)),
            (None, _) => {
                let message = format!("{bug}: its `find` does not occur in {file}");
                mistakes.push(mistake(change.line, message));
            }
            (Some(_), more) => {
                let message = format!("{bug}: its `find` occurs {} times in {file}", more + 1);
                mistakes.push(mistake(change.line, message));
            }
        }
    }
    places.sort_by_key(|(place, ..)| place.start);
    for pair in places.windows(2) {
        let [(first, before, _), (second, bug, change)] = pair else { continue };
        if second.start < first.end {
            let message = format!("{bug} and {before} change the same text of {file}");
            mistakes.push(mistake(change.line, message));
        }
    }
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let module = if file.starts_with("crates/domain/") { "crate" } else { "postrider_domain" };
    let (mut changed, mut done) = (String::with_capacity(text.len()), 0);
    for (place, bug, change) in places {
        let switch = format!("{module}::planted::is({module}::planted::Bug::{bug})");
        changed += &text[done..place.start];
        changed += &change.replace.replace(SWITCH, &switch);
        done = place.end;
    }
    Ok(changed + &text[done..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
# A comment.
[[bug]]
name = \"Early\"
breaks = \"It is too early.\"
[[bug.change]]
file = \"crates/domain/src/a.rs\"
find = '''
let wait = 2;
'''
replace = '''
let wait = if planted!() { 1 } else { 2 };
'''

[[bug]]
name = \"Elsewhere\"
breaks = \"It is in another file.\"
[[bug.change]]
file = \"crates/domain/src/b.rs\"
find = \"ready\"
replace = \"(ready || planted!())\"
";

    #[test]
    fn list_has_names_reasons_and_changes() {
        let bugs = parse(LIST).unwrap();
        assert_eq!(bugs.len(), 2);
        assert_eq!((bugs[0].name.as_str(), bugs[0].breaks.as_str()), ("Early", "It is too early."));
        assert_eq!((bugs[0].line, bugs[0].changes[0].line), (2, 5));
        assert_eq!(bugs[0].changes[0].find, "let wait = 2;\n");
        assert_eq!(bugs[1].changes[0].replace, "(ready || planted!())");
    }

    #[test]
    fn change_calls_the_switch_of_its_own_bug() {
        let bugs = parse(LIST).unwrap();
        let file = "crates/domain/src/a.rs";
        let changed = apply(file, "a();\nlet wait = 2;\nb();\n", &changes_in(&bugs, file)).unwrap();
        let switch = "crate::planted::is(crate::planted::Bug::Early)";
        assert_eq!(changed, format!("a();\nlet wait = if {switch} {{ 1 }} else {{ 2 }};\nb();\n"));
    }

    #[test]
    fn find_that_does_not_occur_exactly_once_is_an_error() {
        let bugs = parse(LIST).unwrap();
        let file = "crates/domain/src/a.rs";
        let check = |text: &str, expected: &str| {
            let mistakes = apply(file, text, &changes_in(&bugs, file)).unwrap_err();
            assert_eq!(mistakes, [mistake(5, expected)]);
        };
        check("a();\n", "Early: its `find` does not occur in crates/domain/src/a.rs");
        check(
            "let wait = 2;\nlet wait = 2;\n",
            "Early: its `find` occurs 2 times in crates/domain/src/a.rs",
        );
    }

    #[test]
    fn two_bugs_cannot_change_the_same_text() {
        let list = LIST.to_owned() + &LIST.replace("Early", "Late");
        let bugs = parse(&list).unwrap();
        let file = "crates/domain/src/a.rs";
        let mistakes = apply(file, "let wait = 2;\n", &changes_in(&bugs, file)).unwrap_err();
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        assert!(mistakes[0].message.starts_with("Late and Early change the same text"));
    }

    #[test]
    fn list_with_a_mistake_is_refused_with_its_line() {
        let check = |from: &str, to: &str, line: usize, message: &str| {
            let found = parse(&LIST.replacen(from, to, 1)).unwrap_err();
            assert_eq!(found, mistake(line, message));
        };
        check(
            "planted!()",
            "true",
            5,
            "`replace` has no `planted!()`: the bug could not be switched off",
        );
        check("Early", "too early", 2, "the bug's name is not one like `ProbeTooSoon`");
        check("It is too early.", "", 2, "Early does not say what it breaks");
        check("breaks", "brakes", 4, "no key \"brakes\" here");
        check("[[bug]]", "", 3, "a key of no bug");
        let unchanged = "[[bug]]\nname = \"Idle\"\nbreaks = \"Nothing.\"\n[[bug]]";
        check("[[bug]]", unchanged, 2, "Idle changes nothing");
        check("# A comment.", "A comment.", 1, "cannot parse \"A comment.\"");
        check("name = \"Early\"", "name = Early", 3, "the text has no quotes");
    }
}
