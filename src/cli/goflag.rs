//! Parses the arguments of a role like Go's `flag` package: one dash equals two, names are case-sensitive and exact, and
//! parsing stops at the first argument that is not a flag. The result is in the form that clap parses.

use std::ffi::OsString;

use clap::Command;

use super::pflag::{self, NormalisedArguments};

/// Parses arguments, without the program name, with the flags of a built command.
///
/// Invalid values and unknown flags are left to clap, which reports the most similar flag. Like Go, this stops at the first
/// unknown flag.
pub fn normalise(
    command: &Command,
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<NormalisedArguments, String> {
    let mut normal = NormalisedArguments::default();
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        let text = argument.to_string_lossy();
        if text == "--" {
            break;
        }
        let Some(rest_of_flag) = text.strip_prefix('-').filter(|rest| !rest.is_empty()) else {
            normal.ignored.push(text.into_owned());
            break;
        };
        let body = rest_of_flag.strip_prefix('-').unwrap_or(rest_of_flag);
        if body.starts_with(['-', '=']) {
            return Err(format!("bad flag syntax: {text}"));
        }
        let (name, value) =
            body.split_once('=').map_or((body, None), |(name, value)| (name, Some(value)));
        let Some(known) = pflag::find(command, name) else {
            // Go's `flag` package handles -h and -help even if they are not defined.
            let flag = if name == "h" { "-h".to_owned() } else { format!("--{name}") };
            normal.arguments.push(flag.into());
            break;
        };
        let mut whole = OsString::from(if rest_of_flag == body { "-" } else { "" });
        whole.push(&argument);
        pflag::set(known, (name, value), &whole, &mut rest, &mut normal.arguments)?;
    }
    normal.ignored.extend(rest.map(|word| word.to_string_lossy().into_owned()));
    Ok(normal)
}

#[cfg(test)]
mod tests {
    use clap::{Arg, ArgAction};

    use super::*;

    fn command() -> Command {
        let flag = |name: &'static str| Arg::new(name).long(name);
        let mut command = pflag::adapt_command(
            Command::new("role")
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

    fn normal(line: &str) -> Result<(String, String), String> {
        let words = line.split(' ').filter(|word| !word.is_empty()).map(OsString::from);
        let read = normalise(&command(), words)?;
        let words: Vec<_> = read.arguments.iter().map(|word| word.to_string_lossy()).collect();
        Ok((words.join(" "), read.ignored.join(" ")))
    }

    #[test]
    fn every_flag_form_of_go_is_normalized() {
        for (line, wanted, ignored) in [
            ("", "", ""),
            ("-workers=1", "--workers=1", ""),
            ("--workers=1", "--workers=1", ""),
            ("-workers 1", "--workers=1", ""),
            ("--workers 1", "--workers=1", ""),
            ("-workers -1", "--workers=-1", ""),
            ("-workers -ddTracingEnabled", "--workers=-ddTracingEnabled", ""),
            ("-workers --", "--workers=--", ""),
            ("-workers=", "--workers=", ""),
            ("-logEncoder=a=b", "--logEncoder=a=b", ""),
            ("-workers 1 -workers 2", "--workers=1 --workers=2", ""),
            ("-max-metric-age 0", "--max-metric-age=0", ""),
            ("-ddTracingEnabled", "--ddTracingEnabled", ""),
            ("--ddTracingEnabled=F", "--ddTracingEnabled=F", ""),
            ("-ddTracingEnabled=true -workers=2", "--ddTracingEnabled=true --workers=2", ""),
            ("-disable-fix a -disable-fix=b", "--disable-fix=a --disable-fix=b", ""),
            ("-no-color=1", "--no-color", ""),
            ("-no-color=0", "", ""),
            // A missing value is left to clap.
            ("-workers", "--workers", ""),
            ("-h", "-h", ""),
            ("--h", "-h", ""),
            ("-help", "--help", ""),
        ] {
            assert_eq!(normal(line), Ok((wanted.to_owned(), ignored.to_owned())), "{line}");
        }
    }

    #[test]
    fn parsing_stops_at_the_first_positional_argument() {
        for (line, wanted, ignored) in [
            ("-ddTracingEnabled false -workers 3", "--ddTracingEnabled", "false -workers 3"),
            ("stray -workers=3", "", "stray -workers=3"),
            ("-workers=3 - -logEncoder=json", "--workers=3", "- -logEncoder=json"),
            ("-workers=3 -- -logEncoder=json x", "--workers=3", "-logEncoder=json x"),
            ("--", "", ""),
        ] {
            assert_eq!(normal(line), Ok((wanted.to_owned(), ignored.to_owned())), "{line}");
        }
    }

    #[test]
    fn flag_names_are_exact_and_parsing_stops_at_an_unknown_one() {
        for (line, expected) in [
            ("-logencoder=json", "--logencoder"),
            ("-max_metric_age=1m", "--max_metric_age"),
            ("-workers=1 -x=1 -y", "--workers=1 --x"),
            ("-v4", "--v4"),
        ] {
            assert_eq!(normal(line).map(|(read, _)| read), Ok(expected.to_owned()), "{line}");
        }
    }

    #[test]
    fn bad_flag_syntax_is_rejected_like_go_does() {
        for line in ["---workers=1", "-=1", "--=1", "----", "---"] {
            assert_eq!(normal(line), Err(format!("bad flag syntax: {line}")), "{line}");
        }
        let refused = normal("-no-color=maybe").expect_err("is no boolean");
        assert!(refused.contains("'maybe' for '--no-color'"), "{refused}");
    }

    #[test]
    fn the_last_of_repeated_flags_wins() {
        let read = |line: &str| {
            let arguments = normalise(&command(), line.split(' ').map(OsString::from))
                .expect("reads")
                .arguments;
            command().try_get_matches_from(std::iter::once(OsString::from("role")).chain(arguments))
        };
        let matches =
            read("-workers 1 --workers=2 -ddTracingEnabled -ddTracingEnabled=0").expect("is fine");
        assert_eq!(matches.get_one::<String>("workers").map(String::as_str), Some("2"));
        assert_eq!(matches.get_one::<bool>("ddTracingEnabled"), Some(&false));
        assert!(read("-ddTracingEnabled=no").is_err());
        assert!(read("-ddTracingEnabled=").is_err());
    }
}
