//! The fenced blocks of Markdown documents, and which of them are shell commands that a check runs.

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The line of its fence, from 1.
    pub(crate) line: usize,
    /// What stands after the fence, such as `sh,no-run`.
    pub(crate) info: String,
    pub(crate) text: String,
}

/// What becomes of a shell block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Run {
    /// `sh`: run to its end, which must be a success.
    ToItsEnd,
    /// `sh,background`: started, and ended with the page.
    Background,
    /// `sh,no-run`: for the reader alone.
    Never,
    /// `<!-- sh: … -->`: for the check alone, to wait for what a reader sees happen.
    Unseen,
}

/// The info of a line that is run and not shown.
const UNSEEN: &str = "<!--";

/// The documents for users, whose shell blocks are run or marked.
pub(crate) fn has_checked_blocks(path: &str) -> bool {
    let page = path.strip_prefix("docs/").filter(|page| page.ends_with(".md"));
    let is_for_users =
        |page: &str| page.strip_prefix("guide/").unwrap_or(page).split('/').count() == 1;
    path == "README.md" || page.is_some_and(is_for_users)
}

impl Block {
    /// What becomes of it, where it is a shell block that says so.
    pub(crate) fn run(&self) -> Option<Run> {
        match self.info.as_str() {
            "sh" => Some(Run::ToItsEnd),
            "sh,background" => Some(Run::Background),
            "sh,no-run" => Some(Run::Never),
            UNSEEN => Some(Run::Unseen),
            _ => None,
        }
    }

    /// The language, which is the first word of the info.
    pub(crate) fn language(&self) -> &str {
        self.info.split([',', ' ']).next().unwrap_or_default()
    }
}

/// The command of a line `<!-- sh: … -->`.
fn unseen(line: &str) -> Option<String> {
    let command = line.strip_prefix("<!-- sh: ")?.strip_suffix(" -->")?;
    Some(format!("{command}\n"))
}

/// The fenced blocks of a document, and its lines of commands that are not shown, in order.
pub(crate) fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(Block, usize)> = None;
    for (index, line) in text.lines().enumerate() {
        let body = line.trim_start();
        let indent = line.len() - body.len();
        match (&mut open, body.strip_prefix("```")) {
            (None, Some(info)) => {
                let info = info.trim().to_owned();
                open = Some((Block { line: index + 1, info, text: String::new() }, indent));
            }
            (Some(_), Some("")) => blocks.extend(open.take().map(|(block, _)| block)),
            (Some((block, indent)), _) => {
                block.text += line.get(*indent..).unwrap_or(body);
                block.text.push('\n');
            }
            (None, None) => blocks.extend(unseen(body).map(|text| Block {
                line: index + 1,
                info: UNSEEN.to_owned(),
                text,
            })),
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_with_their_line_and_without_their_indentation() {
        let text = "a\n```sh,no-run\none\n  two\n```\n- b\n\n  ```sh\n  three\n  ```\n";
        let found = blocks(text);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].line, found[0].text.as_str()), (2, "one\n  two\n"));
        assert_eq!(found[0].run(), Some(Run::Never));
        assert_eq!((found[1].line, found[1].text.as_str()), (8, "three\n"));
        assert_eq!((found[1].run(), found[1].language()), (Some(Run::ToItsEnd), "sh"));
    }

    #[test]
    fn commands_in_comments_are_run_in_their_place() {
        let found = blocks("```sh\na\n```\n<!-- sh: wait for b -->\n<!-- other -->\n");
        assert_eq!(found.len(), 2);
        assert_eq!((found[1].line, found[1].text.as_str()), (4, "wait for b\n"));
        assert_eq!(found[1].run(), Some(Run::Unseen));
    }

    #[test]
    fn blocks_of_pages_for_users_are_run() {
        assert!(has_checked_blocks("README.md") && has_checked_blocks("docs/guide/a.md"));
        assert!(has_checked_blocks("docs/a.md") && !has_checked_blocks("docs/internals/a.md"));
        assert!(
            !has_checked_blocks("docs/guide/b/a.md") && !has_checked_blocks("clients/README.md")
        );
    }
}
