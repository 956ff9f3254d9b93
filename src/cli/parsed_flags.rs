//! Which flags were set explicitly, and which arguments were not flags.

use std::any::TypeId;

use clap::{Arg, ArgMatches, Command, builder::TypedValueParser, parser::ValueSource};

use super::{environment::Environment, prometheus_auth::SECRET_FLAGS};

/// The value of a flag that is accepted for existing manifests, without effect: there is nothing to read.
#[derive(Clone, Copy, Debug)]
pub struct NoEffect;

impl NoEffect {
    /// Rejects the same values as `parser`.
    pub fn checked<P>(parser: P) -> impl TypedValueParser<Value = Self>
    where
        P: TypedValueParser<Value: Send + Sync + Clone>,
    {
        parser.map(|_| Self)
    }

    pub fn is_value_of(argument: &Arg) -> bool {
        argument.get_value_parser().type_id() == TypeId::of::<Self>()
    }
}

/// The sources of flag values, and stray arguments.
#[derive(Clone, Debug, Default)]
pub struct ParsedFlags {
    /// The explicitly set flags by field name, and whether they were set on the command line.
    set: Vec<(String, bool)>,
    /// Those of them whose value is [`NoEffect`].
    without_effect: Vec<String>,
    /// Arguments that are neither flags nor their values.
    stray_arguments: Vec<String>,
    /// Those that were set, have a heading and contain no secrets: reports repeat some of them.
    settings: Vec<Setting>,
    pub environment: Environment,
}

#[derive(Clone, Debug)]
pub struct Setting {
    heading: String,
    pub name: String,
    pub values: Vec<String>,
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
        let flags = command.get_arguments().filter(|argument| NoEffect::is_value_of(argument));
        let set = flags.map(|flag| flag.get_id().to_string()).filter(|flag| parsed.is_set(flag));
        parsed.without_effect = set.collect();
        parsed.without_effect.sort_unstable();
        parsed.settings = settings(command, matches, &parsed);
        parsed
    }

    /// The flags under these headings that were set, except those that may contain secrets.
    pub fn settings_under(&self, headings: [&str; 2]) -> impl Iterator<Item = &Setting> {
        self.settings.iter().filter(move |setting| headings.contains(&&*setting.heading))
    }

    /// Returns the flags that change recommended numbers and were set, as `--name=value`.
    pub fn number_settings(&self) -> Vec<String> {
        let settings = self.settings_under(["Model", "Requests and limits"]);
        settings
            .map(|Setting { name, values, .. }| format!("--{name}={}", values.join(",")))
            .collect()
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

    /// Warnings about arguments that are not flags, and about flags that have no effect.
    pub fn warnings(&self) -> Vec<String> {
        self.stray_arguments_warning().into_iter().chain(self.without_effect_warning()).collect()
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

fn settings(command: &Command, matches: &ArgMatches, parsed: &ParsedFlags) -> Vec<Setting> {
    let is_shown = |id: &str| !SECRET_FLAGS.contains(&id) && id != "prometheus_address";
    let settings = command.get_arguments().filter_map(|flag| {
        let id = flag.get_id().as_str();
        let (heading, name) = (flag.get_help_heading()?.to_owned(), flag.get_long()?.to_owned());
        let values = matches.get_raw(id).filter(|_| parsed.is_set(id) && is_shown(id))?;
        let values = values.map(|value| value.to_string_lossy().into_owned()).collect();
        Some(Setting { heading, name, values })
    });
    settings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{ROLES, flags::command};

    #[test]
    fn the_flags_without_effect_are_those_whose_help_states_it() {
        const KLOG: [&str; 11] = [
            "add-dir-header",
            "alsologtostderrthreshold",
            "legacy-stderr-threshold-behavior",
            "log-backtrace-at",
            "log-dir",
            "log-file-max-size",
            "one-output",
            "skip-headers",
            "skip-log-headers",
            "stderrthreshold",
            "vmodule",
        ];
        let of_vpa_roles = [&KLOG[..], &["profiling"]].concat();
        let watermark =
            ["ddProfilingEnabled", "ddTracingEnabled", "log-timestamp-format", "syncPeriodSeconds"];
        let removed_by_upstream = [
            "horizontal-pod-autoscaler-downscale-delay",
            "horizontal-pod-autoscaler-upscale-delay",
            "horizontal-pod-autoscaler-use-rest-clients",
        ];
        let mut root = command();
        root.build();
        for (role, _) in ROLES {
            let mut expected = match role {
                "watermark" => watermark.to_vec(),
                "recommender" => [&of_vpa_roles[..], &["memory-saver", "min-checkpoints"]].concat(),
                "horizontal" => [&of_vpa_roles[..], &removed_by_upstream].concat(),
                _ => of_vpa_roles.clone(),
            };
            let role = root.find_subcommand(role).expect("a role");
            let mut found: Vec<&str> = Vec::new();
            for flag in role.get_arguments().filter(|flag| !flag.is_positional()) {
                let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
                let is_stated = help.contains("ed, without effect: ");
                assert_eq!(NoEffect::is_value_of(flag), is_stated, "{flag}: {help}");
                found.extend(flag.get_long().filter(|_| is_stated));
            }
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "{}", role.get_name());
        }
    }
}
