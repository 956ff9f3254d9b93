//! Parses flags into configurations without running anything: for several roles in one process, for tests, and to check
//! command lines in the documentation.

use std::ffi::OsString;

use super::{
    Command, admission, backtest_options::BacktestCommand, environment::Environment, explain,
    horizontal, one_line, output::CliError, parse, parse_problem, parsed_flags::ParsedFlags,
    recommend_options::RecommendCommand, recommender, ui, ui_server::UiCommand, updater, watermark,
};
use crate::controllers::{
    AdmissionConfig, HorizontalConfig, RecommenderConfig, UpdaterConfig, WatermarkConfig,
    all_in_one::AllInOneConfig, runtime::config::ProcessConfig,
};
use crate::report::{backtest::run::BacktestConfig, recommend::run::RecommendConfig};
use plimsoll_core::types::compat::Compat;

/// Parses the flags of a recommender, or returns the error message.
pub fn recommender_config(flags: &[&str]) -> Result<RecommenderConfig, String> {
    role_config(recommender::NAME, flags, |_| String::new(), |all| all.recommender)
}

/// Parses the flags of an admission controller. `variable` reads the environment.
pub fn admission_config(
    flags: &[&str],
    variable: impl Fn(&str) -> String + 'static,
) -> Result<AdmissionConfig, String> {
    role_config(admission::NAME, flags, variable, |all| all.admission)
}

/// Parses the flags of an updater. `variable` reads the environment.
pub fn updater_config(
    flags: &[&str],
    variable: impl Fn(&str) -> String + 'static,
) -> Result<UpdaterConfig, String> {
    role_config(updater::NAME, flags, variable, |all| all.updater)
}

/// Parses the flags of a watermark controller in namespace `default`, unless `NAMESPACE` or a flag sets another one.
/// `variable` reads the environment.
pub fn watermark_config(
    flags: &[&str],
    variable: impl Fn(&str) -> String + 'static,
) -> Result<WatermarkConfig, String> {
    role_config(watermark::NAME, flags, variable, |all| all.watermark)
}

pub fn horizontal_config(flags: &[&str]) -> Result<HorizontalConfig, String> {
    role_config(horizontal::NAME, flags, |_| String::new(), |all| all.horizontal)
}

/// Parses the flags of a report on workloads.
pub fn recommend_config(flags: &[&str]) -> Result<RecommendConfig, String> {
    let config = |parsed| match parsed {
        (Command::Recommend(arguments), typed) => RecommendCommand::new(*arguments, &typed),
        _ => Err(CliError::usage(OTHER)),
    };
    let command = parse_command("recommend", &words(flags), &empty()).and_then(config);
    command.map(|command| command.config).map_err(CliError::into_message)
}

pub fn backtest_config(flags: &[&str]) -> Result<BacktestConfig, String> {
    let config = |parsed| match parsed {
        (Command::Backtest(arguments), typed) => BacktestCommand::new(*arguments, &typed),
        _ => Err(CliError::usage(OTHER)),
    };
    let command = parse_command("backtest", &words(flags), &empty()).and_then(config);
    command.map(|command| command.config).map_err(CliError::into_message)
}

fn role_config<C>(
    role: &str,
    flags: &[&str],
    variable: impl Fn(&str) -> String + 'static,
    pick: fn(AllInOneConfig) -> Option<C>,
) -> Result<C, String> {
    let mut config = AllInOneConfig::default();
    add_role(role, &words(flags), &mut config, &Environment::of(variable))
        .map_err(CliError::into_message)?;
    pick(config).ok_or_else(|| format!("not the {role}"))
}

/// Parses the flags of several roles in one process.
pub fn all_in_one_config(
    flags: &[&str],
    variable: impl Fn(&str) -> String + 'static,
) -> Result<AllInOneConfig, String> {
    let environment = Environment::of(variable);
    let config = |parsed| match parsed {
        (Command::Run(arguments), _) => arguments.config(&environment),
        _ => Err(CliError::usage(OTHER)),
    };
    let command = parse_command("run", &words(flags), &environment).and_then(config);
    command.map(|command| command.controllers).map_err(CliError::into_message)
}

pub(super) fn ui_command(
    flags: &[OsString],
    environment: &Environment,
) -> Result<UiCommand, CliError> {
    match parse_command(ui::NAME, flags, environment)? {
        (Command::Ui(arguments), typed) => arguments.command(&typed),
        _ => Err(CliError::usage(OTHER)),
    }
}

fn empty() -> Environment {
    Environment::of(|_| String::new())
}

/// The error for flags of another command, which the parser returns for none.
const OTHER: &str = "not flags of this command; see --help";

fn words(flags: &[&str]) -> Vec<OsString> {
    flags.iter().map(OsString::from).collect()
}

pub(super) fn parse_command(
    command: &str,
    flags: &[OsString],
    environment: &Environment,
) -> Result<(Command, ParsedFlags), CliError> {
    let line = ["plimsoll", command].map(OsString::from).into_iter().chain(flags.to_vec());
    let (cli, mut typed) = parse(line).map_err(|error| parse_problem(&error))?;
    typed.environment = environment.clone();
    Ok((cli.command, typed))
}

/// Adds a role to a process, with its flags parsed as if it ran alone.
pub(super) fn add_role(
    role: &str,
    flags: &[OsString],
    config: &mut AllInOneConfig,
    environment: &Environment,
) -> Result<(ProcessConfig, Compat), CliError> {
    let (command, typed) = parse_command(role, flags, environment)?;
    configure_role(command, &typed, config)
}

fn configure_role(
    command: Command,
    typed: &ParsedFlags,
    config: &mut AllInOneConfig,
) -> Result<(ProcessConfig, Compat), CliError> {
    Ok(match command {
        Command::Recommender(arguments) => {
            let role = config.recommender.insert(arguments.config(typed)?);
            (role.process.clone(), role.compat)
        }
        Command::Updater(arguments) => {
            let role = config.updater.insert(arguments.config(typed)?);
            (role.process.clone(), role.settings.compat)
        }
        Command::AdmissionController(arguments) => {
            let role = config.admission.insert(arguments.config(typed)?);
            (role.process.clone(), role.compat)
        }
        Command::Watermark(arguments) => {
            let role = config.watermark.insert(arguments.config(typed)?);
            (role.settings.process.clone(), role.settings.compat)
        }
        Command::Horizontal(arguments) => {
            let role = config.horizontal.insert(arguments.config(typed)?);
            (role.settings.process.clone(), role.compat)
        }
        _ => return Err(CliError::usage(OTHER)),
    })
}

/// Returns the warnings about flags, if there are any, as an error.
fn without_warnings(process: &ProcessConfig) -> Result<(), CliError> {
    if process.warnings.is_empty() { Ok(()) } else { Err(process.warnings.join("; ").into()) }
}

/// Checks whether a command line, including the program name, is valid and causes no warnings. Otherwise returns the error
/// message. Used to check the examples in the documentation.
pub fn check(words: &[&str]) -> Result<(), String> {
    let parsed = parse(words.iter().map(OsString::from));
    let (cli, mut typed) = parsed.map_err(|error| one_line(&error.render().to_string()))?;
    typed.environment = empty();
    if let Command::Watermark(arguments) = &cli.command
        && let Some(checked) = arguments.check_subcommand()
    {
        return checked.map_err(CliError::into_message);
    }
    let checked = match cli.command {
        Command::Backtest(arguments) => arguments.check(&typed),
        Command::Doctor(arguments) => arguments.check(&typed),
        Command::Explain(arguments) => explain::check(&arguments, &typed),
        Command::Hpa(arguments) => arguments.check(),
        Command::Recommend(arguments) => RecommendCommand::new(*arguments, &typed).map(drop),
        Command::Ui(arguments) => arguments.command(&typed).map(drop),
        Command::Run(arguments) => arguments
            .config(&typed.environment)
            .and_then(|command| without_warnings(&command.daemon.process)),
        Command::Completion(_)
        | Command::Crds(_)
        | Command::Demo(_)
        | Command::Schema(_)
        | Command::Status(_) => Ok(()),
        role => {
            let mut controllers = AllInOneConfig::default();
            configure_role(role, &typed, &mut controllers)
                .and_then(|(process, _)| without_warnings(&process))
        }
    };
    checked.map_err(CliError::into_message)
}
