//! Which flags were set explicitly, and which arguments were not flags.

use clap::{ArgMatches, parser::ValueSource};

/// The sources of flag values, and stray arguments.
#[derive(Clone, Debug, Default)]
pub struct ParsedFlags {
    /// The explicitly set flags by field name, and whether they were set on the command line.
    set: Vec<(String, bool)>,
    /// Arguments that are neither flags nor their values.
    stray_arguments: Vec<String>,
}

impl ParsedFlags {
    /// Collects the sources of the matches of a role.
    pub fn of(matches: &ArgMatches, strays: Vec<String>) -> Self {
        let set = matches.ids().filter_map(|id| match matches.value_source(id.as_str()) {
            Some(ValueSource::CommandLine) => Some((id.to_string(), true)),
            Some(ValueSource::EnvVariable) => Some((id.to_string(), false)),
            _ => None,
        });
        Self { set: set.collect(), stray_arguments: strays }
    }

    /// Whether a flag was set explicitly.
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

    /// A warning about those of the given flags that were set.
    pub fn without_effect_warning<'a>(
        &self,
        flags: impl IntoIterator<Item = &'a str>,
    ) -> Option<String> {
        let set = self.set_among(&flags.into_iter().collect::<Vec<_>>());
        (!set.is_empty()).then(|| format!("accepted, without effect: {}", set.join(", ")))
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
