//! Parses flags into configurations without running anything, for tests and to check command lines in the documentation.

use std::ffi::OsString;

use super::{
    Command, Exit, admission, explain, one_line, output::CliError, parse, parse_problem,
    parsed_flags::ParsedFlags, recommender, updater, watermark,
};
use crate::controllers::{
    AdmissionConfig, RecommenderConfig, UpdaterConfig, WatermarkConfig, all_in_one::AllInOneConfig,
    runtime::config::ProcessConfig,
};

/// Parses the flags of a recommender, or returns the error message.
pub fn recommender_config(flags: &[&str]) -> Result<RecommenderConfig, String> {
    recommender_from(&words(flags), |_| String::new()).map_err(CliError::into_message)
}

/// Parses the flags of an admission controller. `variable` reads the environment.
pub fn admission_config(
    flags: &[&str],
    variable: impl Fn(&str) -> String,
) -> Result<AdmissionConfig, String> {
    admission_from(&words(flags), variable).map_err(CliError::into_message)
}

/// Parses the flags of an updater. `variable` reads the environment.
pub fn updater_config(
    flags: &[&str],
    variable: impl Fn(&str) -> String,
) -> Result<UpdaterConfig, String> {
    updater_from(&words(flags), variable).map_err(CliError::into_message)
}

/// Parses the flags of a watermark controller in namespace `default`, unless `NAMESPACE` or a flag sets another one.
/// `variable` reads the environment.
pub fn watermark_config(
    flags: &[&str],
    variable: impl Fn(&str) -> String,
) -> Result<WatermarkConfig, String> {
    let home = Some("default".to_owned());
    watermark_from(&words(flags), variable, home).map_err(CliError::into_message)
}

/// Parses the flags of several roles in one process.
pub fn all_in_one_config(
    flags: &[&str],
    variable: impl Fn(&str) -> String + Copy,
) -> Result<AllInOneConfig, String> {
    match parsed("run", &words(flags)) {
        Ok((Command::Run(arguments), _)) => arguments
            .config(variable, Some("default"))
            .map(|(config, _)| config)
            .map_err(CliError::into_message),
        Ok(_) => Err("not the run command".to_owned()),
        Err(problem) => Err(problem.into_message()),
    }
}

fn words(flags: &[&str]) -> Vec<OsString> {
    flags.iter().map(OsString::from).collect()
}

fn parsed(role: &str, flags: &[OsString]) -> Result<(Command, ParsedFlags), CliError> {
    let words = ["plimsoll", role].map(OsString::from).into_iter().chain(flags.iter().cloned());
    let (cli, typed) = parse(words).map_err(|error| parse_problem(&error))?;
    Ok((cli.command, typed))
}

/// The error for flags that select another command, such as `--help`.
fn other_command_error(role: &str) -> CliError {
    CliError::new(Exit::Usage, format!("not flags of the {role}; see --help"))
}

pub(super) fn recommender_from(
    flags: &[OsString],
    variable: impl Fn(&str) -> String,
) -> Result<RecommenderConfig, CliError> {
    match parsed(recommender::NAME, flags)? {
        (Command::Recommender(arguments), typed) => arguments.config(&typed, variable),
        _ => Err(other_command_error(recommender::NAME)),
    }
}

pub(super) fn admission_from(
    flags: &[OsString],
    variable: impl Fn(&str) -> String,
) -> Result<AdmissionConfig, CliError> {
    match parsed(admission::NAME, flags)? {
        (Command::AdmissionController(arguments), typed) => arguments.config(&typed, variable),
        _ => Err(other_command_error(admission::NAME)),
    }
}

pub(super) fn updater_from(
    flags: &[OsString],
    variable: impl Fn(&str) -> String,
) -> Result<UpdaterConfig, CliError> {
    match parsed(updater::NAME, flags)? {
        (Command::Updater(arguments), typed) => arguments.config(&typed, variable),
        _ => Err(other_command_error(updater::NAME)),
    }
}

/// `home` is the namespace of the process, if it is known.
pub(super) fn watermark_from(
    flags: &[OsString],
    variable: impl Fn(&str) -> String,
    home: Option<String>,
) -> Result<WatermarkConfig, CliError> {
    match parsed(watermark::NAME, flags)? {
        (Command::Watermark(arguments), typed) => arguments.config(&typed, variable, home),
        _ => Err(other_command_error(watermark::NAME)),
    }
}

/// Returns the warnings about flags, if there are any, as an error.
pub(super) fn without_warnings(process: &ProcessConfig) -> Result<(), CliError> {
    if process.warnings.is_empty() {
        return Ok(());
    }
    Err(CliError::new(Exit::Findings, process.warnings.join("; ")))
}

/// Checks whether a command line, including the program name, is valid and causes no warnings. Otherwise returns the error
/// message. Used to check the examples in the documentation.
pub fn check(words: &[&str]) -> Result<(), String> {
    let parsed = parse(words.iter().map(OsString::from));
    let (cli, typed) = parsed.map_err(|error| one_line(&error.render().to_string()))?;
    let variable = |_: &str| String::new();
    match cli.command {
        Command::AdmissionController(arguments) => {
            let config = arguments.config(&typed, variable).map_err(CliError::into_message)?;
            without_warnings(&config.process).map_err(CliError::into_message)
        }
        Command::Recommender(arguments) => {
            let config = arguments.config(&typed, variable).map_err(CliError::into_message)?;
            without_warnings(&config.process).map_err(CliError::into_message)
        }
        Command::Updater(arguments) => {
            let config = arguments.config(&typed, variable).map_err(CliError::into_message)?;
            without_warnings(&config.process).map_err(CliError::into_message)
        }
        Command::Doctor(arguments) => {
            arguments.config(variable).map(drop).map_err(CliError::into_message)
        }
        Command::Watermark(arguments) => arguments.check(&typed).map_err(CliError::into_message),
        Command::Explain(arguments) => {
            explain::check(&arguments, &typed).map_err(CliError::into_message)
        }
        Command::Run(arguments) => {
            let home = Some("default");
            let (_, daemon) = arguments.config(variable, home).map_err(CliError::into_message)?;
            without_warnings(&daemon.process).map_err(CliError::into_message)
        }
        Command::Demo(_) | Command::Crds(_) | Command::Status(_) => Ok(()),
    }
}
