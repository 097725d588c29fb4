//! `postrider reference PAGE`: a page of `docs/reference/`, made from what this binary does.
//!
//! Each page is a function from the tables and types that the server itself uses to Markdown, so that a
//! page cannot say anything else. `cargo xtask reference` writes the pages; the command is hidden.

mod api;
mod command_line;
mod errors;
mod events;
mod filters;
mod metrics;
mod settings;

use crate::exit::Failure;

/// Print a page of the reference.
#[derive(Debug, clap::Args)]
pub(crate) struct Reference {
    /// Which one.
    page: Page,
}

/// The pages, each the name of a file.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Page {
    Settings,
    Metrics,
    Cli,
    Api,
    Events,
    Errors,
    Filters,
    Openapi,
}

#[expect(clippy::print_stdout, reason = "the page is the answer")]
pub(crate) fn run(reference: &Reference) -> Result<(), Failure> {
    let page = match reference.page {
        Page::Settings => settings::page(),
        Page::Metrics => metrics::page(),
        Page::Cli => command_line::page(),
        Page::Api => api::page(),
        Page::Events => events::page(),
        Page::Errors => errors::page(),
        Page::Filters => filters::page(),
        Page::Openapi => api::document()?,
    };
    print!("{page}");
    Ok(())
}

/// A Markdown document that grows.
struct Document(String);

impl Document {
    fn new(title: &str, introduction: &str) -> Document {
        let made = "<!-- Made from the code by `cargo xtask reference`: change the code, not this file. -->";
        Document(format!("{made}\n\n# {title}\n\n{introduction}\n"))
    }

    fn heading(&mut self, heading: &str) {
        self.line(&format!("\n## {heading}\n"));
    }

    fn line(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }

    /// The head of a table.
    fn columns(&mut self, names: &[&str]) {
        self.row(names);
        self.line(&format!("|{}", "---|".repeat(names.len())));
    }

    /// A row of a table. What would end a cell is escaped.
    fn row<T: AsRef<str>>(&mut self, cells: &[T]) {
        for cell in cells {
            let text = cell.as_ref().replace('|', "\\|").replace('\n', " ");
            let space = if text.is_empty() { "" } else { " " };
            self.0.push_str(&format!("| {text}{space}"));
        }
        self.line("|");
    }
}

/// Text as code.
fn code(text: &str) -> String {
    format!("`{text}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_a_title_and_no_table_has_a_broken_row() {
        let pages = [
            settings::page(),
            metrics::page(),
            command_line::page(),
            api::page(),
            events::page(),
            errors::page(),
            filters::page(),
        ];
        for page in pages {
            assert_eq!(page.lines().filter(|line| line.starts_with("# ")).count(), 1, "{page}");
            let mut cells = 0;
            for line in page.lines() {
                let here = line.replace("\\|", "").matches('|').count();
                let is_row = line.starts_with('|');
                assert!(!is_row || cells == 0 || here == cells, "{line}");
                cells = if is_row { here } else { 0 };
            }
        }
    }
}
