//! The command line parser.

use clap::{Arg, CommandFactory as _};

use super::{Cli, ROLES, cloud_identity::IDENTITY_HEADING, flag_syntax};

/// Builds the command line parser.
pub fn command() -> clap::Command {
    let root = map_arguments(Cli::command(), complete_flag);
    ROLES
        .into_iter()
        .fold(root, |root, (role, _)| root.mut_subcommand(role, flag_syntax::adapt_command))
}

/// Headings of flags that only `--help` shows, not `-h`.
const LONG_HELP_HEADINGS: [&str; 4] =
    ["Model", "Prometheus", "History in a Prometheus", IDENTITY_HEADING];

/// Applies the rules that hold for all flags.
fn complete_flag(argument: Arg) -> Arg {
    let Some(name) = argument.get_long().filter(|name| *name != "version") else {
        return argument;
    };
    let variable = format!("PLIMSOLL_FLAG_{}", name.to_uppercase().replace('-', "_"));
    let is_variable_shown = argument.is_hide_env_values_set();
    let mut argument = argument.env(variable).hide_env(!is_variable_shown);
    if argument.get_value_names().is_some_and(|names| names == ["BOOL"]) {
        argument = flag_syntax::optional_switch_value(argument);
    }
    if argument.get_default_values() == [""] {
        argument = argument.hide_default_value(true);
    }
    if argument.get_help_heading().is_some_and(|heading| LONG_HELP_HEADINGS.contains(&heading)) {
        argument = argument.hide_short_help(true);
    }
    argument
}

pub(super) fn map_arguments(command: clap::Command, change: fn(Arg) -> Arg) -> clap::Command {
    command.mut_args(change).mut_subcommands(|below| map_arguments(below, change))
}
