//! The command line parser, and the flags of a role as data, from which documentation is generated.

use clap::{Arg, CommandFactory as _};

use super::{Cli, ROLES, flag_syntax};

/// One flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The name without dashes.
    pub name: String,
    /// The default value; empty if there is none.
    pub default: String,
    /// The environment variable that sets the flag.
    pub environment: String,
    /// The help text.
    pub about: String,
    /// The heading in `--help`; empty for the first section.
    pub heading: String,
}

/// All flags of a role, in the order of `--help`.
pub fn of_role(role: &str) -> Vec<Flag> {
    let mut root = command();
    root.build();
    let role = root.find_subcommand(role);
    let arguments = role.into_iter().flat_map(clap::Command::get_arguments);
    let is_builtin =
        |argument: &&Arg| argument.get_id() == "help" || argument.get_id() == "version";
    arguments.filter(|argument| !is_builtin(argument)).filter_map(flag).collect()
}

fn flag(argument: &Arg) -> Option<Flag> {
    let defaults = argument.get_default_values().iter().map(|value| value.to_string_lossy());
    Some(Flag {
        name: argument.get_long()?.to_owned(),
        default: defaults.collect::<Vec<_>>().join(","),
        environment: argument
            .get_env()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
        about: argument.get_help().map(ToString::to_string).unwrap_or_default(),
        heading: argument.get_help_heading().unwrap_or_default().to_owned(),
    })
}

/// Builds the command line parser.
pub(super) fn command() -> clap::Command {
    let root = map_arguments(Cli::command(), complete_flag);
    ROLES
        .into_iter()
        .fold(root, |root, (role, _)| root.mut_subcommand(role, flag_syntax::adapt_command))
}

/// Headings of flags that only `--help` shows, not `-h`.
const LONG_HELP_HEADINGS: [&str; 4] =
    ["Model", "Prometheus", "History in a Prometheus", "Prometheus: OAuth 2 and cloud identities"];

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

/// Applies a change to all arguments of a command and its subcommands.
pub(super) fn map_arguments(command: clap::Command, change: fn(Arg) -> Arg) -> clap::Command {
    command.mut_args(change).mut_subcommands(|below| map_arguments(below, change))
}
