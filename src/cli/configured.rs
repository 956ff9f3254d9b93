//! What is run for some flags, without running it: for whoever starts a role inside of another program, and for
//! documentation, whose command lines are to work.

use std::ffi::OsString;

use super::{
    Command, admission, explain, one_line, output::Problem, parse, recommender, updater, watermark,
};
use crate::run::{AdmissionConfig, RecommenderConfig, UpdaterConfig, WatermarkConfig};

/// What a recommender that is started with these flags runs by, or the line that refuses them: for whoever
/// runs one inside of another program.
pub fn recommender_config(flags: &[&str]) -> Result<RecommenderConfig, String> {
    let words = ["plimsoll", recommender::NAME].into_iter().chain(flags.iter().copied());
    let (cli, typed) =
        parse(words.map(OsString::from)).map_err(|error| one_line(&error.render().to_string()))?;
    match cli.command {
        Command::Recommender(arguments) => {
            arguments.config(&typed, |_| String::new()).map_err(Problem::into_message)
        }
        _ => Err("these are no flags of a recommender".to_owned()),
    }
}

/// The same for an admission controller. `variable` looks into the environment.
pub fn admission_config(
    flags: &[&str],
    variable: impl Fn(&str) -> String,
) -> Result<AdmissionConfig, String> {
    let words = ["plimsoll", admission::NAME].into_iter().chain(flags.iter().copied());
    let (cli, typed) =
        parse(words.map(OsString::from)).map_err(|error| one_line(&error.render().to_string()))?;
    match cli.command {
        Command::AdmissionController(arguments) => {
            arguments.config(&typed, variable).map_err(Problem::into_message)
        }
        _ => Err("these are no flags of an admission controller".to_owned()),
    }
}

/// The same for an updater. `variable` looks into the environment.
pub fn updater_config(
    flags: &[&str],
    variable: impl Fn(&str) -> String,
) -> Result<UpdaterConfig, String> {
    let words = ["plimsoll", updater::NAME].into_iter().chain(flags.iter().copied());
    let (cli, typed) =
        parse(words.map(OsString::from)).map_err(|error| one_line(&error.render().to_string()))?;
    match cli.command {
        Command::Updater(arguments) => {
            arguments.config(&typed, variable).map_err(Problem::into_message)
        }
        _ => Err("these are no flags of an updater".to_owned()),
    }
}

/// The same for a watermark controller, which is in a namespace `default` unless `NAMESPACE` or a flag says another.
/// `variable` looks into the environment.
pub fn watermark_config(
    flags: &[&str],
    variable: impl Fn(&str) -> String,
) -> Result<WatermarkConfig, String> {
    let words = ["plimsoll", watermark::NAME].into_iter().chain(flags.iter().copied());
    let (cli, typed) =
        parse(words.map(OsString::from)).map_err(|error| one_line(&error.render().to_string()))?;
    match cli.command {
        Command::Watermark(arguments) => arguments
            .config(&typed, variable, Some("default".to_owned()))
            .map_err(Problem::into_message),
        _ => Err("these are no flags of a watermark controller".to_owned()),
    }
}

/// Whether this could be run as far as the command line itself decides, its own name first; otherwise the line that
/// refuses it. For documentation: what it shows is to work.
pub fn check(words: &[&str]) -> Result<(), String> {
    let parsed = parse(words.iter().map(OsString::from));
    let (cli, typed) = parsed.map_err(|error| one_line(&error.render().to_string()))?;
    let variable = |_: &str| String::new();
    match cli.command {
        Command::AdmissionController(arguments) => {
            let config = arguments.config(&typed, variable).map_err(Problem::into_message)?;
            if config.warnings.is_empty() { Ok(()) } else { Err(config.warnings.join("; ")) }
        }
        Command::Recommender(arguments) => {
            let config = arguments.config(&typed, variable).map_err(Problem::into_message)?;
            if config.warnings.is_empty() { Ok(()) } else { Err(config.warnings.join("; ")) }
        }
        Command::Updater(arguments) => {
            let config = arguments.config(&typed, variable).map_err(Problem::into_message)?;
            if config.warnings.is_empty() { Ok(()) } else { Err(config.warnings.join("; ")) }
        }
        Command::Doctor(arguments) => {
            arguments.config(variable).map(drop).map_err(Problem::into_message)
        }
        Command::Watermark(arguments) => arguments.check(&typed).map_err(Problem::into_message),
        Command::Explain(arguments) => {
            explain::check(&arguments, &typed).map_err(Problem::into_message)
        }
        Command::Demo(_) | Command::Crds(_) => Ok(()),
    }
}
