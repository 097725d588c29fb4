//! `postrider completions` and `postrider man`: made from the definition of the command line, so that
//! they never differ from it.

use std::io::{self, Write as _};
use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;

/// Prints the completions of a shell.
pub(crate) fn completions(shell: Shell) -> io::Result<()> {
    // Written at once: a reader that leaves early (`| head`) must end this with an error, not a panic.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "postrider", &mut script);
    io::stdout().lock().write_all(&script)
}

/// Writes `postrider.1` and a page for each command.
pub(crate) fn pages(directory: &Path) -> io::Result<()> {
    clap_mangen::generate_to(Cli::command(), directory).map_err(|error| {
        let message = format!("cannot write man pages into {}: {error}", directory.display());
        io::Error::new(error.kind(), message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_man_page_for_each_command_that_help_lists() {
        let directory = tempfile::tempdir().unwrap();
        pages(directory.path()).unwrap();
        let command = Cli::command();
        let listed = command.get_subcommands().filter(|command| !command.is_hide_set());
        let mut count = 0;
        for name in listed.map(clap::Command::get_name) {
            let page = directory.path().join(format!("postrider-{name}.1"));
            let text = std::fs::read_to_string(&page).unwrap();
            let written = format!("postrider-{name}").replace('-', "\\-");
            assert!(text.contains(&written), "{name}: {text}");
            count += 1;
        }
        assert!(count > 15, "{count} commands");
        assert!(!directory.path().join("postrider-man.1").exists(), "it is hidden");
        assert!(directory.path().join("postrider.1").exists());
        let error = pages(&directory.path().join("nowhere")).unwrap_err().to_string();
        assert!(error.contains("nowhere"), "{error}");
    }
}
