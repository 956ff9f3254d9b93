//! What the last word of an incomplete command line can become: found by reading the words before it with the
//! flags of the parser.

use clap::{Arg, ArgAction, Command, ValueHint};

use crate::{
    cli::flag_syntax::{find, needs_value, split_value},
    report::collect::object_names::NamedKind,
};

/// Names of values that are paths.
const PATHS: [&str; 3] = ["DIR", "FILE", "PATH"];

/// The place of the last word.
#[derive(Debug)]
pub struct Position<'a> {
    command: &'a Command,
    /// The names of the command and of those above it, without the program.
    path: Vec<&'a str>,
    expected: Expected<'a>,
    /// What the shell's word contains before the one to complete, such as `--context=`.
    pub prefix: String,
    pub word: String,
    values: Vec<(&'a Arg, String)>,
}

#[derive(Debug)]
enum Expected<'a> {
    Flag,
    Value(&'a Arg),
    /// A command, if there are some below, or a positional argument.
    Argument {
        positional: Option<&'a Arg>,
        commands: bool,
    },
}

/// Names that are not known before the command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    Contexts,
    Namespaces,
    Objects(NamedKind),
}

/// A word that the parser itself knows, with its description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub word: String,
    pub description: String,
}

impl<'a> Position<'a> {
    /// Finds the place of the last word. The command has to be built.
    pub fn find(root: &'a Command, words: &[String]) -> Self {
        let (word, before) =
            words.split_last().map_or(("", words), |(word, rest)| (word.as_str(), rest));
        let mut position = Self {
            command: root,
            path: Vec::new(),
            expected: Expected::Flag,
            prefix: String::new(),
            word: word.to_owned(),
            values: Vec::new(),
        };
        let (mut pending, mut positionals, mut flags_ended) = (None, 0, false);
        for word in before {
            if let Some(flag) = pending.take() {
                position.values.push((flag, word.clone()));
            } else if flags_ended || !is_flag(word) {
                match position.command.find_subcommand(word).filter(|_| positionals == 0) {
                    Some(below) => {
                        position.command = below;
                        position.path.push(below.get_name());
                    }
                    None => positionals += 1,
                }
            } else if word == "--" {
                flags_ended = true;
            } else if let Some((flag, value)) = split_flag(position.command, word) {
                match value {
                    Some(value) => position.values.push((flag, value.to_owned())),
                    None => pending = needs_value(flag).then_some(flag),
                }
            }
        }
        position.expected = if let Some(flag) = pending {
            Expected::Value(flag)
        } else if flags_ended || !word.starts_with('-') {
            let commands = positionals == 0 && !flags_ended;
            Expected::Argument { positional: positional(position.command, positionals), commands }
        } else {
            match split_flag(position.command, word) {
                Some((flag, Some(value))) if flag.get_action().takes_values() => {
                    word[..word.len() - value.len()].clone_into(&mut position.prefix);
                    value.clone_into(&mut position.word);
                    Expected::Value(flag)
                }
                _ => Expected::Flag,
            }
        };
        position
    }

    /// The names that complete the word, if it is to be a name.
    pub fn names(&self) -> Option<Names> {
        let argument = self.argument()?;
        let is_client = self.command.get_arguments().any(|flag| flag.get_id() == "context");
        match argument.get_long() {
            Some("context") => Some(Names::Contexts),
            Some("namespace" | "exclude-namespace") if is_client => Some(Names::Namespaces),
            None if is_client && is_object_name(argument) => {
                Some(Names::Objects(match self.path[..] {
                    ["explain", "vpa"] => NamedKind::Vpa,
                    ["explain", "pod"] => NamedKind::Pod,
                    ["explain", "hpa"] | ["hpa", _] => NamedKind::Hpa,
                    ["explain", "wpa"] | ["watermark", "dry-run", _] => NamedKind::Wpa,
                    _ => return None,
                }))
            }
            _ => None,
        }
    }

    /// The words that the parser knows, and that complete the word.
    pub fn candidates(&self) -> Vec<Candidate> {
        let mut found = match self.expected {
            Expected::Flag => self.command.get_arguments().filter_map(flag_candidate).collect(),
            Expected::Value(_) | Expected::Argument { commands: false, .. } => Vec::new(),
            Expected::Argument { .. } => {
                let below = self.command.get_subcommands().filter(|below| !below.is_hide_set());
                below.map(|below| candidate(below.get_name(), below.get_about())).collect()
            }
        };
        if let Some(argument) = self.argument() {
            let values = argument.get_possible_values().into_iter();
            let values = values.filter(|value| !value.is_hide_set());
            found.extend(values.map(|value| candidate(value.get_name(), value.get_help())));
        }
        found.retain(|candidate| candidate.word.starts_with(&self.word));
        found
    }

    pub fn may_be_a_path(&self) -> bool {
        self.argument().is_some_and(|argument| {
            let names = argument.get_value_names().unwrap_or_default();
            let is_path = names.iter().any(|name| PATHS.contains(&name.as_str()));
            is_path || !matches!(argument.get_value_hint(), ValueHint::Unknown | ValueHint::Other)
        })
    }

    /// The value of a flag before the word, or in the environment.
    pub fn value(&self, flag: &str, variable: impl Fn(&str) -> String) -> Option<String> {
        let typed = self.values.iter().rev().find(|(known, _)| known.get_id() == flag);
        if let Some((_, value)) = typed {
            return Some(value.clone());
        }
        let known = self.command.get_arguments().find(|known| known.get_id() == flag)?;
        Some(variable(known.get_env()?.to_str()?)).filter(|value| !value.is_empty())
    }

    fn argument(&self) -> Option<&'a Arg> {
        match self.expected {
            Expected::Flag => None,
            Expected::Value(flag) => Some(flag),
            Expected::Argument { positional, .. } => positional,
        }
    }
}

fn is_flag(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-')
}

/// Splits `--name=value`, `--name`, `-nvalue` or `-n`, or in Go's syntax `-name=value`.
fn split_flag<'a, 'w>(command: &'a Command, word: &'w str) -> Option<(&'a Arg, Option<&'w str>)> {
    let body = word.trim_start_matches('-');
    let (name, value) = split_value(body);
    if let Some(flag) = find(command, name) {
        return Some((flag, value));
    }
    let (letter, rest) = (name.chars().next()?, value);
    let flag = command.get_arguments().find(|flag| flag.get_short() == Some(letter))?;
    let attached = &body[letter.len_utf8()..];
    match (word.starts_with("--"), attached, rest) {
        (true, ..) => None,
        (false, "", None) => Some((flag, None)),
        (false, attached, _) => Some((flag, Some(attached.strip_prefix('=').unwrap_or(attached)))),
    }
}

/// The positional argument at an index; the last one if it can be repeated.
fn positional(command: &Command, index: usize) -> Option<&Arg> {
    let is_repeated = |argument: &Arg| {
        let most = argument.get_num_args().map_or(1, |count| count.max_values());
        most > 1 || matches!(argument.get_action(), ArgAction::Append)
    };
    let last = command.get_positionals().last().filter(|argument| is_repeated(argument));
    command.get_positionals().nth(index).or(last)
}

fn is_object_name(argument: &Arg) -> bool {
    argument.get_value_names().is_some_and(|names| names == ["[NAMESPACE/]NAME"])
}

fn flag_candidate(flag: &Arg) -> Option<Candidate> {
    let long = flag.get_long().filter(|_| !flag.is_hide_set())?;
    Some(candidate(&format!("--{long}"), flag.get_help()))
}

fn candidate(word: &str, about: Option<&clap::builder::StyledStr>) -> Candidate {
    let about = about.map(ToString::to_string).unwrap_or_default();
    let description = about.lines().next().unwrap_or_default().to_owned();
    Candidate { word: word.to_owned(), description }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::flags::command;

    fn built() -> Command {
        let mut root = command();
        root.build();
        root
    }

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(ToOwned::to_owned).collect()
    }

    #[test]
    fn names_are_expected_where_an_object_a_namespace_or_a_context_is() {
        let objects = |kind| Some(Names::Objects(kind));
        let root = built();
        for (line, expected) in [
            ("explain vpa ", objects(NamedKind::Vpa)),
            ("explain verticalpodautoscaler ", objects(NamedKind::Vpa)),
            ("--no-color explain pod -o json shop/w", objects(NamedKind::Pod)),
            ("explain hpa --watch -- w", objects(NamedKind::Hpa)),
            ("explain hpa --watch=5s w", objects(NamedKind::Hpa)),
            ("explain wpa ", objects(NamedKind::Wpa)),
            ("hpa adopt --assist shop/a ", objects(NamedKind::Hpa)),
            ("hpa release ", objects(NamedKind::Hpa)),
            ("explain vpa shop/web ", None),
            ("explain ", None),
            ("explain vpa --", None),
            ("explain vpa -o ", None),
            ("explain vpa -n ", Some(Names::Namespaces)),
            ("explain vpa -nsh", Some(Names::Namespaces)),
            ("status --namespace=sh", Some(Names::Namespaces)),
            ("doctor hpa --namespace ", Some(Names::Namespaces)),
            ("status --context ", Some(Names::Contexts)),
            ("hpa pause a --context=pr", Some(Names::Contexts)),
            ("updater --namespace ", None),
            ("demo ", None),
            ("", None),
        ] {
            assert_eq!(Position::find(&root, &words(line)).names(), expected, "{line:?}");
        }
        assert_eq!(Position::find(&root, &[]).names(), None);
    }

    #[test]
    fn every_object_name_of_the_command_line_is_completed() {
        fn check(root: &Command, command: &Command, path: &str, count: &mut usize) {
            if command.get_positionals().any(is_object_name) {
                let found = Position::find(root, &words(&format!("{path} "))).names();
                assert!(matches!(found, Some(Names::Objects(_))), "{path}: {found:?}");
                *count += 1;
            }
            for below in command.get_subcommands() {
                let path = format!("{path} {}", below.get_name());
                check(root, below, path.trim_start(), count);
            }
        }
        let (root, mut count) = (built(), 0);
        check(&root, &root, "", &mut count);
        assert!(count >= 8, "only {count} commands have object names");
    }

    #[test]
    fn flags_before_the_word_are_read_also_from_the_environment() {
        let root = built();
        let line =
            "explain vpa --context prod -n=shop --kubeconfig=/k --context dev --output json w";
        let position = Position::find(&root, &words(line));
        let none = |_: &str| String::new();
        assert_eq!(position.value("context", none).as_deref(), Some("dev"));
        assert_eq!(position.value("namespace", none).as_deref(), Some("shop"));
        assert_eq!(position.value("kubeconfig", none).as_deref(), Some("/k"));
        assert_eq!(position.word, "w");
        let position = Position::find(&root, &words("explain vpa --context=pr"));
        assert_eq!((&*position.prefix, &*position.word), ("--context=", "pr"));
        let set = |name: &str| {
            if name == "PLIMSOLL_FLAG_NAMESPACE" { "data".to_owned() } else { String::new() }
        };
        assert_eq!(position.value("namespace", set).as_deref(), Some("data"));
        assert_eq!(position.value("context", set), None, "an empty variable is not set");
    }

    #[test]
    fn commands_flags_and_values_are_candidates() {
        let root = built();
        let found = |line: &str| {
            let position = Position::find(&root, &words(line));
            position.candidates().into_iter().map(|candidate| candidate.word).collect::<Vec<_>>()
        };
        assert_eq!(found("expl"), ["explain"]);
        assert_eq!(found("explain "), ["vpa", "pod", "hpa", "wpa"]);
        assert_eq!(found("explain vpa --conte"), ["--context"]);
        assert_eq!(found("explain vpa -o "), ["text", "json"]);
        assert_eq!(found("explain vpa --output=j"), ["json"]);
        assert_eq!(found("completion "), ["bash", "zsh", "fish", "powershell"]);
        assert_eq!(found("explain vpa shop/web "), [""; 0]);
        assert_eq!(found("explain vpa -- --cont"), [""; 0]);
        assert!(found("watermark -workers 1 --").contains(&"--metrics-addr".to_owned()));
        let described = Position::find(&root, &words("stat")).candidates();
        assert!(described[0].description.starts_with("Shows the status"), "{described:?}");
        assert!(Position::find(&root, &words("status --kubeconfig ")).may_be_a_path());
        assert!(!Position::find(&root, &words("explain vpa ")).may_be_a_path());
    }
}
