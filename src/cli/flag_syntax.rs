//! Parses the arguments of a role like the package that upstream uses, pflag or Go's `flag`: normalises them to the form that
//! clap has in common with both, and leaves the rest to clap.

use std::ffi::{OsStr, OsString};

use clap::{Arg, ArgAction, Command};

use super::{go_values, parsed_flags::NoEffect};

/// The package whose rules apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagSyntax {
    /// Long flags have two dashes, `_` equals `-`, and parsing continues after arguments that are not flags.
    Pflag,
    /// One dash equals two, names are exact, and parsing stops at the first argument that is not a flag.
    GoFlag,
}

/// Arguments in clap's form, and the arguments that the package ignores.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NormalisedArguments {
    /// Flags only: `--name` or `--name=value`.
    pub arguments: Vec<OsString>,
    /// Arguments that are neither flags nor their values.
    pub ignored: Vec<String>,
}

/// Reads arguments with the flags of a built command. The methods for a flag return whether it is known.
struct Normaliser<'a, I> {
    command: &'a Command,
    rest: I,
    arguments: Vec<OsString>,
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
    let argument = argument
        .action(ArgAction::Set)
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
        .value_name("BOOL");
    if NoEffect::is_value_of(&argument) {
        return argument;
    }
    argument.value_parser(go_values::boolean)
}

/// Parses arguments, without the program name, with the flags of a built command.
///
/// Invalid values and unknown flags are left to clap, which reports the most similar flag. Like the packages, this stops at
/// the first unknown flag.
pub fn normalise(
    syntax: FlagSyntax,
    command: &Command,
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<NormalisedArguments, String> {
    let rest = arguments.into_iter();
    let mut reader = Normaliser { command, rest, arguments: Vec::new() };
    let mut ignored = Vec::new();
    while let Some(argument) = reader.rest.next() {
        let text = argument.to_string_lossy();
        let is_flag = text.len() > 1 && text.starts_with('-');
        if !is_flag {
            ignored.push(text.clone().into_owned());
        }
        let continues = match (syntax, text.strip_prefix("--")) {
            (_, Some("")) => false,
            (FlagSyntax::GoFlag, _) => is_flag && reader.go_flag(&argument)?,
            (FlagSyntax::Pflag, Some(body)) => reader.long(&argument, body)?,
            (FlagSyntax::Pflag, None) => !is_flag || reader.short(&text[1..])?,
        };
        if !continues {
            let is_unknown = is_flag && text != "--";
            if syntax == FlagSyntax::GoFlag || !is_unknown {
                ignored.extend(reader.rest.map(|word| word.to_string_lossy().into_owned()));
            }
            break;
        }
    }
    Ok(NormalisedArguments { arguments: reader.arguments, ignored })
}

impl<I: Iterator<Item = OsString>> Normaliser<'_, I> {
    /// Handles `-name`, `-name=value` or `-name value`, with one or two dashes.
    fn go_flag(&mut self, argument: &OsStr) -> Result<bool, String> {
        let text = argument.to_string_lossy();
        let single = text.strip_prefix('-').unwrap_or_default();
        let body = single.strip_prefix('-').unwrap_or(single);
        if body.starts_with(['-', '=']) {
            return Err(format!("bad flag syntax: {text}"));
        }
        let (name, value) = split_value(body);
        let Some(known) = find(self.command, name) else {
            // Go's `flag` package handles -h and -help even if they are not defined.
            self.add(if name == "h" { "-h".to_owned() } else { format!("--{name}") });
            return Ok(false);
        };
        let mut whole = OsString::from(if single == body { "-" } else { "" });
        whole.push(argument);
        self.set(known, (name, value), &whole)?;
        Ok(true)
    }

    /// Handles `--name`, `--name=value` or `--name value`.
    fn long(&mut self, argument: &OsStr, body: &str) -> Result<bool, String> {
        let (name, value) = split_value(body);
        if name.is_empty() || name.starts_with('-') {
            return Err(format!("bad flag syntax: {}", argument.display()));
        }
        let name = canonical(name);
        let Some(known) = find(self.command, &name) else {
            self.add(format!("--{name}"));
            return Ok(false);
        };
        self.set(known, (&name, value), argument)?;
        Ok(true)
    }

    /// Adds a known flag, with the value from the same argument or, if it requires one, from the next argument.
    /// `whole` is the complete argument, with two dashes.
    fn set(
        &mut self,
        known: &Arg,
        (name, value): (&str, Option<&str>),
        whole: &OsStr,
    ) -> Result<(), String> {
        let flag = format!("--{name}");
        match (value_arity(known), value) {
            // Keep a value that is not UTF-8 unchanged: it may be a path.
            (_, Some(_)) if whole.to_str().is_none() => self.add(whole),
            (ValueArity::Never, Some(value)) => match go_values::boolean(value) {
                Ok(true) => self.add(flag),
                Ok(false) => {}
                Err(wanted) => {
                    return Err(format!("invalid value '{value}' for '{flag}': {wanted}"));
                }
            },
            (_, Some(value)) => self.add(format!("{flag}={value}")),
            (ValueArity::Never | ValueArity::Optional, None) => self.add(flag),
            (ValueArity::Required, None) => {
                let value = self.rest.next();
                self.add(with_value(&flag, value));
            }
        }
        Ok(())
    }

    /// Handles `-v4`, `-v=4` or `-v 4`.
    fn short(&mut self, letters: &str) -> Result<bool, String> {
        let mut letters = letters.chars();
        while let Some(letter) = letters.next() {
            let after = letters.as_str();
            let mut flags = self.command.get_arguments();
            let Some(known) = flags.find(|known| known.get_short() == Some(letter)) else {
                return self.unknown_letters(letter, after);
            };
            let Some(name) = known.get_long() else { return Ok(false) };
            let flag = format!("--{name}");
            if !needs_value(known) {
                self.add(flag);
                continue;
            }
            let attached = after.strip_prefix('=').unwrap_or(after);
            let value = if after.is_empty() { self.rest.next() } else { Some(attached.into()) };
            self.add(with_value(&flag, value));
            break;
        }
        Ok(true)
    }

    /// Upstream's roles reject long names with a single dash. Accepting them would hide a typing error.
    fn unknown_letters(&mut self, letter: char, after: &str) -> Result<bool, String> {
        let word = format!("{letter}{after}");
        let name = canonical(word.split('=').next().unwrap_or_default());
        if find(self.command, &name).is_some() {
            return Err(format!("-{name}: long flags require two dashes: --{name}"));
        }
        self.add(if after.is_empty() { format!("-{letter}") } else { format!("--{name}") });
        Ok(false)
    }

    fn add(&mut self, argument: impl Into<OsString>) {
        self.arguments.push(argument.into());
    }
}

pub(super) fn split_value(body: &str) -> (&str, Option<&str>) {
    body.split_once('=').map_or((body, None), |(name, value)| (name, Some(value)))
}

fn canonical(name: &str) -> String {
    name.replace('_', "-")
}

pub(super) fn find<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|known| known.get_long() == Some(name))
}

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
    use super::{FlagSyntax::*, *};

    fn command() -> Command {
        let flag = |name: &'static str| Arg::new(name).long(name);
        let mut command = adapt_command(
            Command::new("role")
                .arg(flag("address"))
                .arg(flag("memory-saver").action(ArgAction::SetTrue))
                .arg(flag("feature-gates").action(ArgAction::Append))
                .arg(flag("v").short('v'))
                .arg(flag("logEncoder"))
                .arg(flag("workers"))
                .arg(flag("max-metric-age"))
                .arg(flag("ddTracingEnabled").action(ArgAction::SetTrue))
                .arg(flag("disable-fix").action(ArgAction::Append)),
        )
        .arg(flag("no-color").action(ArgAction::SetTrue));
        command.build();
        command
    }

    fn normal(syntax: FlagSyntax, line: &str) -> Result<(String, String), String> {
        let words = line.split(' ').filter(|word| !word.is_empty()).map(OsString::from);
        let read = normalise(syntax, &command(), words)?;
        let words: Vec<_> = read.arguments.iter().map(|word| word.to_string_lossy()).collect();
        Ok((words.join(" "), read.ignored.join(" ")))
    }

    #[test]
    fn every_flag_form_of_both_packages_is_normalized() {
        for (syntax, line, wanted, ignored) in [
            (Pflag, "--address=:1", "--address=:1", ""),
            (Pflag, "--address :1", "--address=:1", ""),
            (Pflag, "--address -x", "--address=-x", ""),
            (Pflag, "--address --v", "--address=--v", ""),
            (Pflag, "--address=a=b", "--address=a=b", ""),
            (Pflag, "--address=", "--address=", ""),
            (Pflag, "--memory-saver", "--memory-saver", ""),
            (Pflag, "--memory_saver=F", "--memory-saver=F", ""),
            (Pflag, "--memory-saver false", "--memory-saver", "false"),
            (Pflag, "--feature_gates A=true", "--feature-gates=A=true", ""),
            (Pflag, "-v4", "--v=4", ""),
            (Pflag, "-v=4", "--v=4", ""),
            (Pflag, "-v 4", "--v=4", ""),
            (Pflag, "-v -4", "--v=-4", ""),
            (Pflag, "--v=4", "--v=4", ""),
            (Pflag, "--v 4", "--v=4", ""),
            (Pflag, "-v", "--v", ""),
            (Pflag, "--address", "--address", ""),
            (Pflag, "a --v=4 b -", "--v=4", "a b -"),
            (Pflag, "--v=4 -- --v=5 x", "--v=4", "--v=5 x"),
            (Pflag, "--no-color", "--no-color", ""),
            (Pflag, "--no-color=1", "--no-color", ""),
            (Pflag, "--no-color=0", "", ""),
            (Pflag, "-h", "--help", ""),
            (Pflag, "--help --v=4", "--help --v=4", ""),
            (GoFlag, "", "", ""),
            (GoFlag, "-workers=1", "--workers=1", ""),
            (GoFlag, "--workers=1", "--workers=1", ""),
            (GoFlag, "-workers 1", "--workers=1", ""),
            (GoFlag, "--workers 1", "--workers=1", ""),
            (GoFlag, "-workers -1", "--workers=-1", ""),
            (GoFlag, "-workers -ddTracingEnabled", "--workers=-ddTracingEnabled", ""),
            (GoFlag, "-workers --", "--workers=--", ""),
            (GoFlag, "-workers=", "--workers=", ""),
            (GoFlag, "-logEncoder=a=b", "--logEncoder=a=b", ""),
            (GoFlag, "-workers 1 -workers 2", "--workers=1 --workers=2", ""),
            (GoFlag, "-max-metric-age 0", "--max-metric-age=0", ""),
            (GoFlag, "-ddTracingEnabled", "--ddTracingEnabled", ""),
            (GoFlag, "--ddTracingEnabled=F", "--ddTracingEnabled=F", ""),
            (
                GoFlag,
                "-ddTracingEnabled=true -workers=2",
                "--ddTracingEnabled=true --workers=2",
                "",
            ),
            (GoFlag, "-disable-fix a -disable-fix=b", "--disable-fix=a --disable-fix=b", ""),
            (GoFlag, "-no-color=1", "--no-color", ""),
            (GoFlag, "-no-color=0", "", ""),
            // A missing value is left to clap.
            (GoFlag, "-workers", "--workers", ""),
            (GoFlag, "-h", "-h", ""),
            (GoFlag, "--h", "-h", ""),
            (GoFlag, "-help", "--help", ""),
            // Parsing stops at the first positional argument.
            (
                GoFlag,
                "-ddTracingEnabled false -workers 3",
                "--ddTracingEnabled",
                "false -workers 3",
            ),
            (GoFlag, "stray -workers=3", "", "stray -workers=3"),
            (GoFlag, "-workers=3 - -logEncoder=json", "--workers=3", "- -logEncoder=json"),
            (GoFlag, "-workers=3 -- -logEncoder=json x", "--workers=3", "-logEncoder=json x"),
            (GoFlag, "--", "", ""),
        ] {
            let normal = normal(syntax, line);
            assert_eq!(normal, Ok((wanted.to_owned(), ignored.to_owned())), "{line}");
        }
    }

    #[test]
    fn parsing_stops_at_an_unknown_flag_so_that_it_is_reported() {
        for (syntax, line, expected, ignored) in [
            (Pflag, "--v=4 --adress --vv", "--v=4 --adress", ""),
            (Pflag, "-x --v=4", "-x", ""),
            (Pflag, "-memory-savr --v=4", "--memory-savr", ""),
            (GoFlag, "-logencoder=json", "--logencoder", ""),
            (GoFlag, "-max_metric_age=1m", "--max_metric_age", ""),
            (GoFlag, "-workers=1 -x=1 -y", "--workers=1 --x", "-y"),
            (GoFlag, "-v4", "--v4", ""),
        ] {
            let normal = normal(syntax, line);
            assert_eq!(normal, Ok((expected.to_owned(), ignored.to_owned())), "{line}");
        }
    }

    #[test]
    fn bad_flag_syntax_is_rejected_like_the_packages_do() {
        let error = normal(Pflag, "-memory_saver=true").expect_err("refused");
        assert_eq!(error, "-memory-saver: long flags require two dashes: --memory-saver");
        for (syntax, lines) in [
            (Pflag, &["---v", "--=4"][..]),
            (GoFlag, &["---workers=1", "-=1", "--=1", "----", "---"]),
        ] {
            for line in lines {
                assert_eq!(normal(syntax, line), Err(format!("bad flag syntax: {line}")), "{line}");
            }
        }
        let refused = normal(GoFlag, "-no-color=maybe").expect_err("is no boolean");
        assert!(refused.contains("'maybe' for '--no-color'"), "{refused}");
    }

    #[test]
    fn the_last_of_repeated_flags_wins_and_all_are_validated() {
        let read = |syntax, line: &str| {
            let arguments = normalise(syntax, &command(), line.split(' ').map(OsString::from));
            let arguments = arguments.expect("reads").arguments;
            command().try_get_matches_from(std::iter::once(OsString::from("role")).chain(arguments))
        };
        for (syntax, line, value, switch) in [
            (Pflag, "--v=1 -v2 --address a -v 3 --memory-saver --memory-saver=false", "v", false),
            (Pflag, "--v=3 --memory-saver", "v", true),
            (GoFlag, "-workers 1 --workers=3 -memory-saver -memory-saver=0", "workers", false),
        ] {
            let matches = read(syntax, line).expect("is fine");
            assert_eq!(matches.get_one::<String>(value).map(String::as_str), Some("3"), "{line}");
            assert_eq!(matches.get_one::<bool>("memory-saver"), Some(&switch), "{line}");
        }
        assert!(read(Pflag, "--memory-saver=no --memory-saver").is_err());
        assert!(read(Pflag, "--memory-saver=").is_err());
        assert!(read(GoFlag, "-ddTracingEnabled=no").is_err());
        assert!(read(GoFlag, "-ddTracingEnabled=").is_err());
    }
}
