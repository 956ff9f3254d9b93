//! Parses flags into configurations without running anything: for several roles in one process, for tests, and to check
//! command lines in the documentation.

use std::ffi::OsString;

use super::{
    Command, admission, backtest_options::BacktestCommand, explain, horizontal, one_line,
    output::CliError, parse, parse_problem, parsed_flags::ParsedFlags,
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
    variable: impl Fn(&str) -> String,
) -> Result<AdmissionConfig, String> {
    role_config(admission::NAME, flags, variable, |all| all.admission)
}

/// Parses the flags of an updater. `variable` reads the environment.
pub fn updater_config(
    flags: &[&str],
    variable: impl Fn(&str) -> String,
) -> Result<UpdaterConfig, String> {
    role_config(updater::NAME, flags, variable, |all| all.updater)
}

/// Parses the flags of a watermark controller in namespace `default`, unless `NAMESPACE` or a flag sets another one.
/// `variable` reads the environment.
pub fn watermark_config(
    flags: &[&str],
    variable: impl Fn(&str) -> String,
) -> Result<WatermarkConfig, String> {
    role_config(watermark::NAME, flags, variable, |all| all.watermark)
}

/// Parses the flags of a horizontal controller.
pub fn horizontal_config(flags: &[&str]) -> Result<HorizontalConfig, String> {
    role_config(horizontal::NAME, flags, |_| String::new(), |all| all.horizontal)
}

/// Parses the flags of a report on workloads.
pub fn recommend_config(flags: &[&str]) -> Result<RecommendConfig, String> {
    let (cli, typed) = parse(command_line("recommend", &words(flags)))
        .map_err(|error| one_line(&error.render().to_string()))?;
    let Command::Recommend(arguments) = cli.command else { return Err("not recommend".to_owned()) };
    let command = RecommendCommand::new(&arguments, &typed, |_| String::new());
    command.map(|command| command.config).map_err(CliError::into_message)
}

pub fn backtest_config(flags: &[&str]) -> Result<BacktestConfig, String> {
    let (cli, typed) = parse(command_line("backtest", &words(flags)))
        .map_err(|error| one_line(&error.render().to_string()))?;
    let Command::Backtest(arguments) = cli.command else { return Err("not backtest".to_owned()) };
    let command = BacktestCommand::new(&arguments, &typed, |_| String::new());
    command.map(|command| command.config).map_err(CliError::into_message)
}

fn role_config<C>(
    role: &str,
    flags: &[&str],
    variable: impl Fn(&str) -> String,
    pick: fn(AllInOneConfig) -> Option<C>,
) -> Result<C, String> {
    let mut config = AllInOneConfig::default();
    add_role(role, &words(flags), &mut config, variable, Some("default"))
        .map_err(CliError::into_message)?;
    pick(config).ok_or_else(|| format!("not the {role}"))
}

/// Parses the flags of several roles in one process.
pub fn all_in_one_config(
    flags: &[&str],
    variable: impl Fn(&str) -> String + Copy,
) -> Result<AllInOneConfig, String> {
    match parse(command_line("run", &words(flags))).map(|(cli, _)| cli.command) {
        Ok(Command::Run(arguments)) => arguments.config(variable, Some("default")),
        Ok(_) => Err("not the run command".into()),
        Err(problem) => Err(parse_problem(&problem)),
    }
    .map(|command| command.controllers)
    .map_err(CliError::into_message)
}

/// Parses the flags of the web page.
pub(super) fn ui_command(
    flags: &[OsString],
    variable: impl Fn(&str) -> String + Copy,
) -> Result<UiCommand, CliError> {
    let parsed = parse(command_line(ui::NAME, flags));
    let (cli, typed) = parsed.map_err(|error| parse_problem(&error))?;
    let Command::Ui(arguments) = cli.command else {
        return Err(CliError::usage("not flags of the ui; see --help"));
    };
    arguments.command(&typed, variable)
}

fn words(flags: &[&str]) -> Vec<OsString> {
    flags.iter().map(OsString::from).collect()
}

fn command_line(command: &str, flags: &[OsString]) -> impl Iterator<Item = OsString> {
    ["plimsoll", command].map(OsString::from).into_iter().chain(flags.to_vec())
}

/// Adds a role to a process, with its flags parsed as if it ran alone. `home` is the namespace of the process, if it is
/// known.
pub(super) fn add_role(
    role: &str,
    flags: &[OsString],
    config: &mut AllInOneConfig,
    variable: impl Fn(&str) -> String,
    home: Option<&str>,
) -> Result<(ProcessConfig, Compat), CliError> {
    let (cli, typed) = parse(command_line(role, flags)).map_err(|error| parse_problem(&error))?;
    configure_role(cli.command, &typed, config, variable, home)
}

fn configure_role(
    command: Command,
    typed: &ParsedFlags,
    config: &mut AllInOneConfig,
    variable: impl Fn(&str) -> String,
    home: Option<&str>,
) -> Result<(ProcessConfig, Compat), CliError> {
    Ok(match command {
        Command::Recommender(arguments) => {
            let role = config.recommender.insert(arguments.config(typed, variable)?);
            (role.process.clone(), role.compat)
        }
        Command::Updater(arguments) => {
            let role = config.updater.insert(arguments.config(typed, variable)?);
            (role.process.clone(), role.settings.compat)
        }
        Command::AdmissionController(arguments) => {
            let role = config.admission.insert(arguments.config(typed, variable)?);
            (role.process.clone(), role.compat)
        }
        Command::Watermark(arguments) => {
            let home = home.map(ToOwned::to_owned);
            let role = config.watermark.insert(arguments.config(typed, variable, home)?);
            (role.process.clone(), role.compat)
        }
        Command::Horizontal(arguments) => {
            let role = config.horizontal.insert(arguments.config(typed, variable)?);
            (role.process.clone(), role.compat)
        }
        _ => return Err(CliError::usage("not flags of a controller; see --help")),
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
    let (cli, typed) = parsed.map_err(|error| one_line(&error.render().to_string()))?;
    let variable = |_: &str| String::new();
    if let Command::Watermark(arguments) = &cli.command
        && let Some(checked) = arguments.check_subcommand()
    {
        return checked.map_err(CliError::into_message);
    }
    let checked = match cli.command {
        Command::Backtest(arguments) => arguments.check(&typed),
        Command::Doctor(arguments) => arguments.check(),
        Command::Explain(arguments) => explain::check(&arguments, &typed),
        Command::Hpa(arguments) => arguments.check(),
        Command::Recommend(arguments) => {
            RecommendCommand::new(&arguments, &typed, variable).map(drop)
        }
        Command::Ui(arguments) => arguments.command(&typed, variable).map(drop),
        Command::Run(arguments) => arguments
            .config(variable, Some("default"))
            .and_then(|command| without_warnings(&command.daemon.process)),
        Command::Completion(_)
        | Command::Crds(_)
        | Command::Demo(_)
        | Command::Schema(_)
        | Command::Status(_) => Ok(()),
        role => {
            let mut controllers = AllInOneConfig::default();
            configure_role(role, &typed, &mut controllers, variable, Some("default"))
                .and_then(|(process, _)| without_warnings(&process))
        }
    };
    checked.map_err(CliError::into_message)
}
