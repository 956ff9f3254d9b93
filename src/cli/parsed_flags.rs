//! What was typed, where that matters beyond the value: which flags were set, and what stood beside them.

use clap::{ArgMatches, parser::ValueSource};

/// How the command line was filled in.
#[derive(Clone, Debug, Default)]
pub struct ParsedFlags {
    /// Flags that were set, by the name of their field, and whether on the command line.
    set: Vec<(String, bool)>,
    /// What stood there without being a flag or its value.
    stray_arguments: Vec<String>,
}

impl ParsedFlags {
    /// What these matches of a role were filled from.
    pub fn of(matches: &ArgMatches, strays: Vec<String>) -> Self {
        let set = matches.ids().filter_map(|id| match matches.value_source(id.as_str()) {
            Some(ValueSource::CommandLine) => Some((id.to_string(), true)),
            Some(ValueSource::EnvVariable) => Some((id.to_string(), false)),
            _ => None,
        });
        Self { set: set.collect(), stray_arguments: strays }
    }

    /// Whether a flag was set at all.
    pub fn is_set(&self, flag: &str) -> bool {
        self.set.iter().any(|(name, _)| name == flag)
    }

    /// Whether a flag was set where everybody on the machine can read it.
    pub fn is_set_on_command_line(&self, flag: &str) -> bool {
        self.set.iter().any(|(name, typed)| name == flag && *typed)
    }

    /// Those of these flags that were set, as they are typed.
    pub fn set_among(&self, flags: &[&str]) -> Vec<String> {
        let set = flags.iter().filter(|flag| self.is_set(flag));
        set.map(|flag| format!("--{}", flag.replace('_', "-"))).collect()
    }

    /// What to say where flags end at the first word that is none, and others may stand behind it. None is repeated: one
    /// may be a password.
    pub fn ignored_flags_warning(&self) -> Option<String> {
        let first = self.stray_arguments.first()?;
        let behind = match self.stray_arguments.len() - 1 {
            0 => "it is ignored".to_owned(),
            1 => "it is ignored, and so is the word behind it".to_owned(),
            more => format!("it is ignored, and so are the {more} words behind it"),
        };
        let boolean = super::go_values::boolean(first).is_ok();
        let remedy =
            if boolean { ": a switch takes its value as in -ddTracingEnabled=false" } else { "" };
        Some(format!("flags end at the first word that is none: {behind}{remedy}"))
    }

    /// What to say about words that are no flags. They are not repeated: one may be a password.
    pub fn stray_arguments_warning(&self) -> Option<String> {
        let number = match self.stray_arguments.len() {
            0 => return None,
            1 => "one argument is no flag and is ignored".to_owned(),
            more => format!("{more} arguments are no flags and are ignored"),
        };
        let boolean =
            self.stray_arguments.iter().any(|word| super::go_values::boolean(word).is_ok());
        let remedy =
            if boolean { ": a switch takes its value as in --memory-saver=false" } else { "" };
        Some(number + remedy)
    }
}
