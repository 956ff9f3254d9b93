//! Parses the arguments of a role like pflag, which upstream uses: normalises them to the form that clap and pflag have in
//! common, and leaves the rest to clap.

use std::ffi::{OsStr, OsString};

use clap::{Arg, ArgAction, Command};

use super::go_values;

/// Arguments in clap's form, and the arguments that pflag ignores.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NormalisedArguments {
    /// Flags only: `--name` or `--name=value`.
    pub arguments: Vec<OsString>,
    /// Arguments that are neither flags nor their values.
    pub ignored: Vec<String>,
}

/// Adapts a role's command to pflag: boolean flags can have a value, and the last value of a repeated flag counts.
pub fn adapt_command(command: Command) -> Command {
    let switch = |argument: Arg| {
        if !matches!(argument.get_action(), ArgAction::SetTrue) {
            return argument;
        }
        optional_switch_value(argument).default_value("false").hide_default_value(true)
    };
    command.args_override_self(true).mut_args(switch)
}

/// Lets a boolean flag have a value, as in `--name=false`.
pub fn optional_switch_value(argument: Arg) -> Arg {
    argument
        .action(ArgAction::Set)
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
        .value_name("BOOL")
        .value_parser(go_values::boolean)
}

/// Parses arguments, without the program name, with the flags of a built command.
///
/// Invalid values and unknown flags are left to clap, which reports the most similar flag. Like pflag, this stops at the
/// first unknown flag.
pub fn normalise(
    command: &Command,
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<NormalisedArguments, String> {
    let mut normal = NormalisedArguments::default();
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        let text = argument.to_string_lossy();
        let known = if text == "--" {
            normal.ignored.extend(rest.by_ref().map(|stray| stray.to_string_lossy().into_owned()));
            true
        } else if let Some(body) = text.strip_prefix("--") {
            long(command, &argument, body, &mut rest, &mut normal.arguments)?
        } else if let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            short(command, letters, &mut rest, &mut normal.arguments)?
        } else {
            normal.ignored.push(text.into_owned());
            true
        };
        if !known {
            break;
        }
    }
    Ok(normal)
}

/// Handles `--name`, `--name=value` or `--name value`. Returns whether the flag is known.
fn long(
    command: &Command,
    argument: &OsStr,
    body: &str,
    rest: &mut impl Iterator<Item = OsString>,
    out: &mut Vec<OsString>,
) -> Result<bool, String> {
    let (name, value) =
        body.split_once('=').map_or((body, None), |(name, value)| (name, Some(value)));
    if name.is_empty() || name.starts_with('-') {
        return Err(format!("bad flag syntax: {}", argument.display()));
    }
    let name = canonical(name);
    let Some(known) = find(command, &name) else {
        out.push(format!("--{name}").into());
        return Ok(false);
    };
    set(known, (&name, value), argument, rest, out)?;
    Ok(true)
}

/// Adds a known flag, with the value from the same argument or, if it requires one, from the next argument.
/// `whole` is the complete argument, with two dashes.
pub(super) fn set(
    known: &Arg,
    (name, value): (&str, Option<&str>),
    whole: &OsStr,
    rest: &mut impl Iterator<Item = OsString>,
    out: &mut Vec<OsString>,
) -> Result<(), String> {
    let flag = format!("--{name}");
    match (value_arity(known), value) {
        // Keep a value that is not UTF-8 unchanged: it may be a path.
        (_, Some(_)) if whole.to_str().is_none() => out.push(whole.to_owned()),
        (ValueArity::Never, Some(value)) => match go_values::boolean(value) {
            Ok(true) => out.push(flag.into()),
            Ok(false) => {}
            Err(wanted) => return Err(format!("invalid value '{value}' for '{flag}': {wanted}")),
        },
        (_, Some(value)) => out.push(format!("{flag}={value}").into()),
        (ValueArity::Never | ValueArity::Optional, None) => out.push(flag.into()),
        (ValueArity::Required, None) => out.push(with_value(&flag, rest.next())),
    }
    Ok(())
}

/// Handles `-v4`, `-v=4` or `-v 4`. Returns whether the flag is known.
fn short(
    command: &Command,
    letters: &str,
    rest: &mut impl Iterator<Item = OsString>,
    out: &mut Vec<OsString>,
) -> Result<bool, String> {
    let mut letters = letters.chars();
    while let Some(letter) = letters.next() {
        let after = letters.as_str();
        let Some(known) = command.get_arguments().find(|known| known.get_short() == Some(letter))
        else {
            return unknown_letters(command, letter, after, out);
        };
        let Some(name) = known.get_long() else { return Ok(false) };
        let flag = format!("--{name}");
        if value_arity(known) != ValueArity::Required {
            out.push(flag.into());
            continue;
        }
        let attached = after.strip_prefix('=').unwrap_or(after);
        let value = if after.is_empty() { rest.next() } else { Some(attached.into()) };
        out.push(with_value(&flag, value));
        break;
    }
    Ok(true)
}

/// Upstream's roles reject long names with a single dash. Accepting them would hide a typing error.
fn unknown_letters(
    command: &Command,
    letter: char,
    after: &str,
    out: &mut Vec<OsString>,
) -> Result<bool, String> {
    let word = format!("{letter}{after}");
    let name = canonical(word.split('=').next().unwrap_or_default());
    if find(command, &name).is_some() {
        return Err(format!("-{name}: long flags require two dashes: --{name}"));
    }
    out.push(if after.is_empty() { format!("-{letter}") } else { format!("--{name}") }.into());
    Ok(false)
}

fn canonical(name: &str) -> String {
    name.replace('_', "-")
}

/// Finds a flag by its long name.
pub(super) fn find<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|known| known.get_long() == Some(name))
}

/// Whether a flag takes a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueArity {
    Never,
    /// Only after an equals sign.
    Optional,
    Required,
}

/// Whether a flag without `=` takes the next argument as its value.
pub(super) fn needs_value(argument: &Arg) -> bool {
    value_arity(argument) == ValueArity::Required
}

fn value_arity(argument: &Arg) -> ValueArity {
    if !argument.get_action().takes_values() {
        ValueArity::Never
    } else if argument.get_num_args().is_some_and(|range| range.min_values() == 0) {
        ValueArity::Optional
    } else {
        ValueArity::Required
    }
}

/// Joins a flag and its value. A missing value is left to clap, which reports it.
fn with_value(flag: &str, value: Option<OsString>) -> OsString {
    let mut joined = OsString::from(flag);
    if let Some(value) = value {
        joined.push("=");
        joined.push(value);
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        let flag = |name: &'static str| Arg::new(name).long(name);
        let mut command = adapt_command(
            Command::new("role")
                .arg(flag("address"))
                .arg(flag("memory-saver").action(ArgAction::SetTrue))
                .arg(flag("feature-gates").action(ArgAction::Append))
                .arg(flag("v").short('v')),
        )
        .arg(flag("no-color").action(ArgAction::SetTrue));
        command.build();
        command
    }

    fn normal(line: &str) -> Result<(String, String), String> {
        let read = normalise(
            &command(),
            line.split(' ').filter(|word| !word.is_empty()).map(OsString::from),
        )?;
        let words: Vec<_> = read.arguments.iter().map(|word| word.to_string_lossy()).collect();
        Ok((words.join(" "), read.ignored.join(" ")))
    }

    #[test]
    fn every_flag_form_of_pflag_is_normalized() {
        for (line, wanted, ignored) in [
            ("--address=:1", "--address=:1", ""),
            ("--address :1", "--address=:1", ""),
            ("--address -x", "--address=-x", ""),
            ("--address --v", "--address=--v", ""),
            ("--address=a=b", "--address=a=b", ""),
            ("--address=", "--address=", ""),
            ("--memory-saver", "--memory-saver", ""),
            ("--memory_saver=F", "--memory-saver=F", ""),
            ("--memory-saver false", "--memory-saver", "false"),
            ("--feature_gates A=true", "--feature-gates=A=true", ""),
            ("-v4", "--v=4", ""),
            ("-v=4", "--v=4", ""),
            ("-v 4", "--v=4", ""),
            ("-v -4", "--v=-4", ""),
            ("--v=4", "--v=4", ""),
            ("--v 4", "--v=4", ""),
            ("-v", "--v", ""),
            ("--address", "--address", ""),
            ("a --v=4 b -", "--v=4", "a b -"),
            ("--v=4 -- --v=5 x", "--v=4", "--v=5 x"),
            ("--no-color", "--no-color", ""),
            ("--no-color=1", "--no-color", ""),
            ("--no-color=0", "", ""),
            ("-h", "--help", ""),
            ("--help --v=4", "--help --v=4", ""),
        ] {
            assert_eq!(normal(line), Ok((wanted.to_owned(), ignored.to_owned())), "{line}");
        }
    }

    #[test]
    fn parsing_stops_at_an_unknown_flag_so_that_it_is_reported() {
        assert_eq!(normal("--v=4 --adress --vv"), Ok(("--v=4 --adress".into(), String::new())));
        assert_eq!(normal("-x --v=4"), Ok(("-x".into(), String::new())));
        assert_eq!(normal("-memory-savr --v=4"), Ok(("--memory-savr".into(), String::new())));
    }

    #[test]
    fn long_flags_need_two_dashes() {
        let error = normal("-memory_saver=true").expect_err("refused");
        assert_eq!(error, "-memory-saver: long flags require two dashes: --memory-saver");
        assert_eq!(normal("---v").expect_err("refused"), "bad flag syntax: ---v");
        assert_eq!(normal("--=4").expect_err("refused"), "bad flag syntax: --=4");
    }

    #[test]
    fn the_last_of_repeated_flags_wins_and_all_are_validated() {
        let read = |line: &str| {
            let arguments = normalise(&command(), line.split(' ').map(OsString::from))
                .expect("reads")
                .arguments;
            command().try_get_matches_from(std::iter::once(OsString::from("role")).chain(arguments))
        };
        let matches = read("--v=1 -v2 --address a -v 3 --memory-saver --memory-saver=false")
            .expect("is fine");
        assert_eq!(matches.get_one::<String>("v").map(String::as_str), Some("3"));
        assert_eq!(matches.get_one::<bool>("memory-saver"), Some(&false));
        assert!(read("--memory-saver=no --memory-saver").is_err());
        assert!(read("--memory-saver=").is_err());
        assert_eq!(
            read("--memory-saver").expect("is fine").get_one::<bool>("memory-saver"),
            Some(&true)
        );
    }
}
