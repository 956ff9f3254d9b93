//! The flags of a role as data, to compare them with the documentation and with upstream.

use clap::Arg;
use plimsoll::cli::flags::command;

/// One flag.
#[derive(Clone, Debug)]
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
