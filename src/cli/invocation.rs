//! The name by which the program was started: `plimsoll`, a role, or a plugin of kubectl. Usage, errors and
//! examples name the command that the user typed.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
    sync::OnceLock,
};

use clap::{Command, CommandFactory as _};

use super::{Cli, DRY_RUN_COMMAND, ROLES, watermark};

/// What follows `plimsoll` on the command line of a shell that completes it.
pub(super) const COMPLETE_COMMAND: &str = "__complete";

/// The columns of examples: help is not wider.
const HELP_WIDTH: usize = 80;
/// How far a description below its command is indented.
const DESCRIPTION_INDENT: usize = 6;

/// How the program was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Invocation {
    #[default]
    Program,
    /// `kubectl plimsoll`: kubectl starts the file `kubectl-plimsoll`.
    KubectlPlugin,
    /// kubectl starts the file `kubectl_complete-plimsoll` to complete words after `kubectl plimsoll`.
    KubectlCompletion,
    /// The completion script of a shell starts `plimsoll __complete`.
    ShellCompletion,
}

static STARTED_AS: OnceLock<Invocation> = OnceLock::new();

impl Invocation {
    /// Derives it from all arguments, the first of which is the name of the program.
    pub fn of(arguments: &[OsString]) -> Self {
        let program = arguments.first().and_then(|program| Path::new(program).file_name());
        match program.and_then(OsStr::to_str) {
            Some("kubectl-plimsoll") => Self::KubectlPlugin,
            Some("kubectl_complete-plimsoll") => Self::KubectlCompletion,
            _ if arguments.get(1).is_some_and(|word| word == COMPLETE_COMMAND) => {
                Self::ShellCompletion
            }
            _ => Self::Program,
        }
    }

    /// Stores how this process was started. Only the first call counts.
    pub fn store(self) {
        // Tests run several command lines in one process, all of the same kind.
        let _ = STARTED_AS.set(self);
    }

    pub fn current() -> Self {
        STARTED_AS.get().copied().unwrap_or_default()
    }

    pub const fn command(self) -> &'static str {
        match self {
            Self::Program | Self::ShellCompletion => "plimsoll",
            Self::KubectlPlugin | Self::KubectlCompletion => "kubectl plimsoll",
        }
    }

    /// Replaces the command that starts the program in usage and examples.
    pub fn adapt(self, command: Command) -> Command {
        if self.command() == Self::Program.command() {
            return command;
        }
        self.adapt_examples(command).bin_name(self.command())
    }

    fn adapt_examples(self, command: Command) -> Command {
        let renamed = command
            .get_after_help()
            .map(|examples| rename_examples(&examples.to_string(), self.command()));
        let command = match renamed {
            Some(examples) => command.after_help(examples),
            None => command,
        };
        command.mut_subcommands(|below| self.adapt_examples(below))
    }

    /// Replaces the command that starts the program in a message.
    pub fn rename(self, message: &str) -> String {
        if self.command() == Self::Program.command() {
            return message.to_owned();
        }
        rename_commands(message, self.command())
    }
}

/// Replaces `plimsoll` where a command line starts: it is a word of its own, and a command or a flag follows.
fn rename_commands(text: &str, name: &str) -> String {
    let program = Invocation::Program.command();
    let root = Cli::command();
    let (mut renamed, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(program) {
        let (before, after) = (&rest[..at], &rest[at + program.len()..]);
        renamed.push_str(before);
        let is_separator = |letter: char| letter.is_whitespace() || "`(".contains(letter);
        let is_start =
            renamed.chars().next_back().is_none_or(is_separator) && !renamed.ends_with("kubectl ");
        let next = after.strip_prefix(' ').unwrap_or_default();
        let ends = |letter: char| letter.is_whitespace() || "`),.:;".contains(letter);
        let next = next.split(ends).next().unwrap_or_default();
        let is_command = next.starts_with("--") || root.find_subcommand(next).is_some();
        renamed.push_str(if is_start && is_command { name } else { program });
        rest = after;
    }
    renamed + rest
}

/// Replaces `plimsoll` in examples. Descriptions beside commands keep their column if they can, and move
/// below a command that has become too long.
fn rename_examples(text: &str, name: &str) -> String {
    let rename_line = |line: &str| {
        let renamed = rename_commands(line, name);
        let added = renamed.chars().count() - line.chars().count();
        let Some((command, description)) = split_description(&renamed).filter(|_| added > 0) else {
            return renamed;
        };
        let gap = renamed.len() - command.len() - description.len();
        let gap = gap.saturating_sub(added).max(2);
        let line = format!("{command}{}{description}", " ".repeat(gap));
        if line.chars().count() <= HELP_WIDTH {
            return line;
        }
        format!("{command}\n{}{description}", " ".repeat(DESCRIPTION_INDENT))
    };
    text.split('\n').map(rename_line).collect::<Vec<_>>().join("\n")
}

/// Splits an example at the first gap of two spaces.
fn split_description(line: &str) -> Option<(&str, &str)> {
    let indent = line.len() - line.trim_start().len();
    let at = indent + line[indent..].find("  ")?;
    Some((&line[..at], line[at..].trim_start()))
}

/// Finds the role to start, by its command or by the program name, with the arguments before and after it.
/// Returns `None` for a subcommand of a role.
pub(super) fn find_role(
    arguments: &[OsString],
) -> Option<(&'static str, &[OsString], &[OsString])> {
    let (program, rest) = arguments.split_first()?;
    let stem = Path::new(program).file_stem();
    if let Some((role, _)) =
        ROLES.into_iter().find(|(_, program)| stem.is_some_and(|stem| stem == *program))
    {
        return Some((role, &[], rest));
    }
    // Only switches can precede a command.
    let at = rest.iter().position(|word| !word.to_string_lossy().starts_with('-'))?;
    let (role, _) = ROLES.into_iter().find(|(role, _)| rest[at] == *role)?;
    let after = &rest[at + 1..];
    let is_below =
        role == watermark::NAME && after.first().is_some_and(|word| word == DRY_RUN_COMMAND);
    (!is_below).then_some((role, &rest[..at], after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{flags::command, one_line, parse};

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_file_name_of_the_program_decides_how_it_was_started() {
        for (line, expected) in [
            ("plimsoll status", Invocation::Program),
            ("kubectl-plimsoll status", Invocation::KubectlPlugin),
            ("/usr/local/bin/kubectl-plimsoll", Invocation::KubectlPlugin),
            ("./kubectl-plimsoll-old status", Invocation::Program),
            ("/kubectl-plimsoll/plimsoll status", Invocation::Program),
            (
                "/usr/bin/kubectl_complete-plimsoll explain __complete",
                Invocation::KubectlCompletion,
            ),
            ("plimsoll __complete explain", Invocation::ShellCompletion),
            ("plimsoll explain __complete", Invocation::Program),
        ] {
            assert_eq!(Invocation::of(&words(line)), expected, "{line}");
        }
        assert_eq!(Invocation::of(&[]), Invocation::Program);
    }

    #[test]
    fn usage_and_examples_of_the_plugin_name_kubectl() {
        let help = |program: &str, flags: &str| {
            let error = parse(words(&format!("{program} {flags}"))).expect_err("help");
            error.render().to_string()
        };
        let plugin = help("/opt/bin/kubectl-plimsoll", "explain vpa --help");
        assert!(plugin.contains("Usage: kubectl plimsoll explain vpa "), "{plugin}");
        assert!(
            plugin.contains("\n  kubectl plimsoll explain vpa shop/web --context prod\n"),
            "{plugin}"
        );
        assert!(!plugin.contains("\n  plimsoll "), "{plugin}");
        let role = help("kubectl-plimsoll", "recommender --help");
        assert!(role.contains("Usage: kubectl plimsoll recommender "), "{role}");
        let program = help("plimsoll", "explain vpa --help");
        assert!(program.contains("Usage: plimsoll explain vpa "), "{program}");
        assert!(!program.contains("kubectl plimsoll"), "{program}");
        let version = help("kubectl-plimsoll", "--version");
        assert_eq!(version, help("plimsoll", "--version"));
    }

    #[test]
    fn errors_of_the_plugin_are_those_of_the_program() {
        let refuse = |program: &str| {
            let error = parse(words(&format!("{program} explain vpb"))).expect_err("refused");
            one_line(&error.render().to_string())
        };
        assert_eq!(refuse("kubectl-plimsoll"), refuse("plimsoll"));
        let message =
            "see `plimsoll crds`, plimsoll explain pod, name=plimsoll crds and plimsoll-x";
        assert_eq!(
            Invocation::KubectlPlugin.rename(message),
            "see `kubectl plimsoll crds`, kubectl plimsoll explain pod, name=plimsoll crds and plimsoll-x"
        );
        assert_eq!(Invocation::Program.rename(message), message);
        let renamed = Invocation::KubectlPlugin.rename(message);
        assert_eq!(Invocation::KubectlPlugin.rename(&renamed), renamed, "twice is once");
        assert_eq!(
            Invocation::KubectlPlugin.rename("helm install plimsoll deploy"),
            "helm install plimsoll deploy"
        );
    }

    #[test]
    fn descriptions_keep_their_column_or_move_below_the_command() {
        let text = "Examples:\n  plimsoll demo              simulates\n  plimsoll crds  prints\n\nSee plimsoll hpa.\n";
        assert_eq!(
            rename_examples(text, "kubectl plimsoll"),
            "Examples:\n  kubectl plimsoll demo      simulates\n  kubectl plimsoll crds  prints\n\n\
             See kubectl plimsoll hpa.\n"
        );
        let long = format!("  plimsoll crds {}  {}", "x".repeat(40), "y".repeat(20));
        let renamed = rename_examples(&long, "kubectl plimsoll");
        let expected =
            format!("  kubectl plimsoll crds {}\n      {}", "x".repeat(40), "y".repeat(20));
        assert_eq!(renamed, expected);
    }

    #[test]
    fn help_of_the_plugin_fits_80_columns_and_names_no_other_command() {
        fn check(command: &mut Command, count: &mut usize) {
            for line in command.render_long_help().to_string().lines() {
                assert!(line.chars().count() <= HELP_WIDTH, "{}: {line}", command.get_name());
                assert!(!line.trim_start().starts_with("plimsoll "), "{line}");
                *count += line.matches("kubectl plimsoll ").count();
            }
            for below in command.get_subcommands_mut() {
                check(below, count);
            }
        }
        let mut root = Invocation::KubectlPlugin.adapt(command());
        root.build();
        let mut count = 0;
        check(&mut root, &mut count);
        assert!(count > 60, "only {count} examples were renamed");
    }

    #[test]
    fn a_role_is_selected_by_subcommand_or_program_name_and_not_by_its_subcommands() {
        let of = |line: &str| {
            let words = words(line);
            find_role(&words).map(|(role, before, after)| (role, before.len(), after.len()))
        };
        assert_eq!(of("plimsoll --no-color watermark -workers 1"), Some(("watermark", 1, 2)));
        assert_eq!(of("kubectl-plimsoll updater --dry-run"), Some(("updater", 0, 1)));
        assert_eq!(of("/manager -workers=1"), Some(("watermark", 0, 1)));
        assert_eq!(of("/manager dry-run list"), Some(("watermark", 0, 2)));
        assert_eq!(of("plimsoll watermark dry-run list --all"), None);
        assert_eq!(of("plimsoll crds"), None);
        let line = ["plimsoll", "watermark", "dry-run", "revert", "-f", "-"].map(OsString::from);
        assert!(parse(line).is_ok());
    }
}
