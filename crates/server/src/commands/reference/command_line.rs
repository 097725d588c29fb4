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
    options(&mut page, command.get_arguments().chain(connection(&command)));
    for one in command.get_subcommands() {
        describe(&mut page, one);
    }
    page.0
}

/// How the commands that ask a server find it: those of one of them, which all have alike.
fn connection(command: &Command) -> impl Iterator<Item = &Arg> {
    let send = command.find_subcommand("send").into_iter();
    send.flat_map(Command::get_arguments)
        .filter(|arg| arg.is_global_set() && arg.get_id() != "json")
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
