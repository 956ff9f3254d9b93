//! Which flags were set explicitly, and which arguments were not flags.

use clap::{ArgMatches, Command, parser::ValueSource};

/// The sources of flag values, and stray arguments.
#[derive(Clone, Debug, Default)]
pub struct ParsedFlags {
    /// The explicitly set flags by field name, and whether they were set on the command line.
    set: Vec<(String, bool)>,
    /// Those that are accepted for existing manifests, without effect, which their help states.
    without_effect: Vec<String>,
    /// Arguments that are neither flags nor their values.
    stray_arguments: Vec<String>,
}

impl ParsedFlags {
    /// Collects the sources of the matches of a command.
    pub fn of(command: &Command, matches: &ArgMatches, strays: Vec<String>) -> Self {
        let set = matches.ids().filter_map(|id| match matches.value_source(id.as_str()) {
            Some(ValueSource::CommandLine) => Some((id.to_string(), true)),
            Some(ValueSource::EnvVariable) => Some((id.to_string(), false)),
            _ => None,
        });
        let mut parsed = Self { set: set.collect(), stray_arguments: strays, ..Self::default() };
        let without_effect = command.get_arguments().filter(|argument| {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            help.contains("ed, without effect: ") && parsed.is_set(argument.get_id().as_str())
        });
        parsed.without_effect =
            without_effect.map(|argument| argument.get_id().to_string()).collect();
        parsed.without_effect.sort_unstable();
        parsed
    }

    pub fn is_set(&self, flag: &str) -> bool {
        self.set.iter().any(|(name, _)| name == flag)
    }

    /// Whether a flag was set on the command line, which all users of the machine can read.
    pub fn is_set_on_command_line(&self, flag: &str) -> bool {
        self.set.iter().any(|(name, typed)| name == flag && *typed)
    }

    /// Returns those of the given flags that were set, with dashes.
    pub fn set_among(&self, flags: &[&str]) -> Vec<String> {
        let set = flags.iter().filter(|flag| self.is_set(flag));
        set.map(|flag| format!("--{}", flag.replace('_', "-"))).collect()
    }

    /// A warning about flags that were set and have no effect.
    pub fn without_effect_warning(&self) -> Option<String> {
        let flags: Vec<&str> = self.without_effect.iter().map(String::as_str).collect();
        let set = self.set_among(&flags).join(", ");
        (!set.is_empty()).then(|| format!("accepted, without effect: {set}"))
    }

    /// A warning for parsers that stop at the first argument that is not a flag. The arguments are not included, because one
    /// may be a password.
    pub fn ignored_flags_warning(&self) -> Option<String> {
        let first = self.stray_arguments.first()?;
        let ignored = match self.stray_arguments.len() - 1 {
            0 => "it is ignored".to_owned(),
            1 => "it is ignored, and so is the argument after it".to_owned(),
            more => format!("it is ignored, and so are the {more} arguments after it"),
        };
        let boolean = super::go_values::boolean(first).is_ok();
        let remedy = if boolean {
            ": set a boolean flag with an equals sign, as in -ddTracingEnabled=false"
        } else {
            ""
        };
        Some(format!("unexpected argument, parsing of flags stopped: {ignored}{remedy}"))
    }

    /// A warning about arguments that are not flags. They are not included, because one may be a password.
    pub fn stray_arguments_warning(&self) -> Option<String> {
        let number = match self.stray_arguments.len() {
            0 => return None,
            1 => "ignoring one argument that is not a flag".to_owned(),
            more => format!("ignoring {more} arguments that are not flags"),
        };
        let boolean =
            self.stray_arguments.iter().any(|word| super::go_values::boolean(word).is_ok());
        let remedy = if boolean {
            ": set a boolean flag with an equals sign, as in --memory-saver=false"
        } else {
            ""
        };
        Some(number + remedy)
    }
}
