//! The page of the commands, walked from the parser that reads the command line.

use clap::{Arg, Command, CommandFactory as _};

use super::{Document, code};
use crate::cli::Cli;

const INTRODUCTION: &str = "\
One program is the server and its commands. `postrider help COMMAND` prints the same.";

pub(super) fn page() -> String {
    let mut command = Cli::command();
    command.build();
    let mut page = Document::new("Command line", INTRODUCTION);
    if let Some(more) = command.get_after_help() {
        page.line(&format!("\n{more}"));
    }
    page.heading("Options of every command");
    options(&mut page, command.get_arguments());
    page.heading("Options of commands that ask a server");
    let asking = command.get_subcommands().filter(|one| !one.is_hide_set() && asks(one));
    let asking: Vec<String> = asking.map(|one| code(one.get_name())).collect();
    page.line(&format!("{} take these as well.\n", asking.join(", ")));
    options(&mut page, connection(&command));
    for one in command.get_subcommands() {
        describe(&mut page, one);
    }
    page.0
}

/// The options by which the commands that ask a server find it: those of `send`, which all of them have.
fn connection(command: &Command) -> impl Iterator<Item = &Arg> {
    let of_all = |arg: &&Arg| command.get_arguments().any(|one| one.get_id() == arg.get_id());
    let send = command.find_subcommand("send").into_iter();
    send.flat_map(Command::get_arguments).filter(move |arg| arg.is_global_set() && !of_all(arg))
}

/// Whether a command asks a server: it has the options of `Connection`.
fn asks(command: &Command) -> bool {
    command.get_arguments().any(|arg| arg.get_id() == "tenant" && arg.is_global_set())
}

/// A command and what is below it.
fn describe(page: &mut Document, command: &Command) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let mut command = command.clone();
    let usage = command.render_usage().to_string();
    page.heading(&code(command.get_bin_name().unwrap_or(command.get_name())));
    let about = command.get_long_about().or(command.get_about());
    page.line(&format!(
        "{}.",
        about.map(ToString::to_string).unwrap_or_default().trim_end_matches('.')
    ));
    page.line(&format!("\n```text\n{}\n```", usage.trim_start_matches("Usage: ")));
    let own: Vec<&Arg> = command.get_arguments().filter(|arg| !arg.is_global_set()).collect();
    if own.iter().any(|arg| is_shown(arg)) {
        page.line("");
        options(page, own.into_iter());
    }
    for one in command.get_subcommands() {
        describe(page, one);
    }
}

fn is_shown(arg: &Arg) -> bool {
    !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str())
}

fn options<'a>(page: &mut Document, arguments: impl Iterator<Item = &'a Arg>) {
    page.columns(&["argument", "meaning"]);
    for arg in arguments.filter(|arg| is_shown(arg)) {
        page.row(&[code(&named(arg)), meaning(arg)]);
    }
}

/// `--rate <RATE>`, or `<URL>`.
fn named(arg: &Arg) -> String {
    let takes_value = arg.is_positional() || arg.get_action().takes_values();
    let values = arg.get_value_names().filter(|_| takes_value).unwrap_or_default();
    let values: Vec<String> = values.iter().map(|name| format!("<{name}>")).collect();
    let long = arg.get_long().map(|long| format!("--{long}"));
    let words: Vec<String> = long.into_iter().chain(values).collect();
    words.join(" ")
}

fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let default: Vec<String> = if arg.get_action().takes_values() {
        arg.get_default_values().iter().map(|one| one.to_string_lossy().into_owned()).collect()
    } else {
        Vec::new()
    };
    let possible = arg.get_possible_values();
    let is_flag = !arg.get_action().takes_values();
    let possible: Vec<String> = possible.iter().map(|one| code(one.get_name())).collect();
    let mut text = help;
    if !possible.is_empty() && !is_flag {
        text += &format!(". One of {}", possible.join(", "));
    }
    if !default.is_empty() {
        text += &format!(". Unless given: `{}`", default.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::page;

    #[test]
    fn options_are_listed_once_and_with_the_commands_that_take_them() {
        let page = page();
        assert_eq!(page.matches("| `--color <WHEN>` |").count(), 1);
        assert_eq!(page.matches("| `--as <TENANT>` |").count(), 1);
        let asking = page.lines().find(|line| line.ends_with("take these as well.")).unwrap();
        for (command, asks) in [("send", true), ("erase", true), ("serve", false), ("demo", false)]
        {
            assert_eq!(asking.contains(&format!("`{command}`")), asks, "{command}: {asking}");
        }
    }
}
