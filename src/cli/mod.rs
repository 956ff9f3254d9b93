//! The command line: what was typed becomes a checked configuration, is run, and ends with an exit code.
//!
//! Results go to standard output, everything else to standard error. Every flag has an environment twin
//! `PLIMSOLL_FLAG_<NAME>`; a plain `PLIMSOLL_<NAME>` would collide with what Kubernetes sets for Services.

mod admission;
mod all_in_one;
mod certificates;
mod cloud_identity;
mod cluster;
mod config_from_flags;
mod crds;
mod daemon;
mod demo;
mod disruption_limits;
mod doctor;
mod election;
mod exit;
mod explain;
mod feature_gates;
pub mod flags;
mod go_values;
mod goflag;
mod klog;
pub mod log;
mod model;
mod output;
mod panic_hook;
mod parsed_flags;
mod pflag;
mod pod_caps;
mod progress;
mod prometheus;
mod prometheus_auth;
mod recommender;
mod registration;
mod sizing;
mod spinner;
mod status;
mod terminal;
mod updater;
mod updater_policy;
mod watermark;

use std::{ffi::OsString, path::Path};

use clap::{
    Arg, CommandFactory as _, FromArgMatches as _, Parser, Subcommand,
    builder::{BoolishValueParser, Resettable},
    error::{ContextKind, ContextValue, ErrorKind},
};

pub use config_from_flags::{
    admission_config, all_in_one_config, check, recommender_config, updater_config,
    watermark_config,
};
pub use exit::Exit;

use self::{
    output::{CliError, escape_to_one_line},
    parsed_flags::ParsedFlags,
    terminal::Terminal,
};

const EXAMPLES: &str = "\
Examples:
  plimsoll demo                        eight virtual days, in seconds
  plimsoll demo --output json          the same as data
  plimsoll crds | kubectl apply -f -   install the CustomResourceDefinitions
  plimsoll recommender                 recommend, from inside of a cluster
  plimsoll admission-controller        give new pods what is recommended
  plimsoll updater --dry-run           what it would change of running pods
  plimsoll watermark --dry-run         what it would set replicas to
  plimsoll run --roles=recommender,updater
                                       several roles in one process
  plimsoll status                      how the roles in a cluster are
  plimsoll explain vpa shop/web        why its numbers are what they are
  plimsoll explain pod shop/web-0      why the updater leaves it as it is
  plimsoll doctor --prometheus-address http://localhost:9090
                                       what history a Prometheus can give

Every flag can be set in the environment instead, --no-color as
PLIMSOLL_FLAG_NO_COLOR=true.
Exit codes: 0 fine, 1 findings or bad input, 2 usage, 3 a bug in this program,
129, 130, 143 stopped by SIGHUP, SIGINT, SIGTERM.
Documentation: README.md and docs/ in the source.";

/// The load line for Kubernetes: decides how much CPU and memory every workload gets, and says why.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, after_help = EXAMPLES, max_term_width = 80)]
#[command(disable_help_subcommand = true, arg_required_else_help = true)]
struct Cli {
    /// Never use colours (NO_COLOR, TERM=dumb and pipes do the same)
    #[arg(long, global = true, env = "PLIMSOLL_FLAG_NO_COLOR", hide_env_values = true)]
    #[arg(value_parser = BoolishValueParser::new())]
    no_color: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    AdmissionController(Box<admission::AdmissionArgs>),
    Demo(Box<demo::DemoArgs>),
    Crds(crds::CrdsArgs),
    Doctor(Box<doctor::DoctorArgs>),
    Explain(Box<explain::ExplainArgs>),
    Recommender(Box<recommender::RecommenderArgs>),
    Run(all_in_one::RunArgs),
    Status(status::StatusArgs),
    Updater(Box<updater::UpdaterArgs>),
    Watermark(Box<watermark::WatermarkArgs>),
}

/// Commands that upstream has as programs, with the names of those, by which they are also started. Each reads its flags
/// as upstream's does.
const ROLES: [(&str, &str); 4] = [
    (admission::NAME, admission::NAME),
    (recommender::NAME, recommender::NAME),
    (updater::NAME, updater::NAME),
    (watermark::NAME, watermark::PROGRAM),
];

/// The command below the role of watermarks.
const DRY_RUN_COMMAND: &str = "dry-run";

/// Runs the program with these arguments, its own name first.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    panic_hook::install();
    let outcome = parse(arguments).map_err(|error| parse_problem(&error)).and_then(|parsed| {
        let (Cli { no_color, command }, typed) = parsed;
        let terminal = Terminal::detect(no_color);
        match command {
            Command::AdmissionController(arguments) => admission::run(&arguments, &typed),
            Command::Demo(arguments) => demo::run(*arguments, &terminal),
            Command::Crds(arguments) => crds::run(&arguments),
            Command::Doctor(arguments) => doctor::run(&arguments, &typed, &terminal),
            Command::Explain(arguments) => explain::run(&arguments, &typed, &terminal),
            Command::Recommender(arguments) => recommender::run(&arguments, &typed),
            Command::Run(arguments) => all_in_one::run(&arguments),
            Command::Status(arguments) => status::run(&arguments, &terminal),
            Command::Updater(arguments) => updater::run(&arguments, &typed),
            Command::Watermark(arguments) => watermark::run(&arguments, &typed, &terminal),
        }
    });
    match outcome {
        Ok(exit) => exit,
        Err(problem) => problem.report(),
    }
}

/// The command line as it is read.
fn command() -> clap::Command {
    ROLES
        .into_iter()
        .fold(Cli::command(), |root, (role, _)| root.mut_subcommand(role, pflag::adapt_command))
}

/// Reads the command line and its environment twins; a variable that is empty counts as not set.
fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<(Cli, ParsedFlags), clap::Error> {
    let set = |argument: Arg| {
        let empty =
            argument.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty());
        if empty { argument.env(Resettable::Reset) } else { argument }
    };
    let mut command = map_arguments(command(), set);
    let (arguments, strays) =
        normalise_role_arguments(&mut command, arguments.into_iter().collect())?;
    let read = command.try_get_matches_from(arguments).and_then(|matches| {
        let mut innermost = &matches;
        while let Some((_, below)) = innermost.subcommand() {
            innermost = below;
        }
        Ok((Cli::from_arg_matches(&matches)?, ParsedFlags::of(innermost, strays)))
    });
    read.map_err(escape_typed_text)
}

/// A command with all of its arguments changed, and those of the commands below it.
fn map_arguments(command: clap::Command, change: fn(Arg) -> Arg) -> clap::Command {
    command.mut_args(change).mut_subcommands(|below| map_arguments(below, change))
}

/// The arguments of a role as clap reads them, and what is no flag among them; those of other commands as they are.
fn normalise_role_arguments(
    command: &mut clap::Command,
    arguments: Vec<OsString>,
) -> Result<(Vec<OsString>, Vec<String>), clap::Error> {
    let Some((role, before, after)) = find_role(&arguments) else {
        return Ok((arguments, Vec::new()));
    };
    let mut root = command.clone();
    root.build();
    let Some(flags) = root.find_subcommand(role) else { return Ok((arguments, Vec::new())) };
    let words = after.iter().cloned();
    let read = if role == watermark::NAME {
        goflag::normalise(flags, words)
    } else {
        pflag::normalise(flags, words)
    };
    let read =
        read.map_err(|error| command.error(ErrorKind::InvalidValue, escape_to_one_line(&error)))?;
    if role == watermark::NAME && read.ignored.first().is_some_and(|word| word == DRY_RUN_COMMAND) {
        // Whoever wants to look must not start a controller.
        let told = "dry-run goes right behind watermark, and its flags behind it";
        return Err(command.error(ErrorKind::InvalidValue, told));
    }
    let program = std::iter::once(OsString::from("plimsoll"));
    let whole = program.chain(before.iter().cloned()).chain([role.into()]).chain(read.arguments);
    Ok((whole.collect(), read.ignored))
}

/// The role that is started, with what stands before its name and after it: by its command, or because the program
/// was called so. A command below a role is none.
fn find_role(arguments: &[OsString]) -> Option<(&'static str, &[OsString], &[OsString])> {
    let (program, rest) = arguments.split_first()?;
    let stem = Path::new(program).file_stem();
    if let Some((role, _)) =
        ROLES.into_iter().find(|(_, program)| stem.is_some_and(|it| it == *program))
    {
        return Some((role, &[], rest));
    }
    // What stands before a command is switches.
    let at = rest.iter().position(|word| !word.to_string_lossy().starts_with('-'))?;
    let (role, _) = ROLES.into_iter().find(|(role, _)| rest[at] == *role)?;
    let after = &rest[at + 1..];
    let is_below =
        role == watermark::NAME && after.first().is_some_and(|word| word == DRY_RUN_COMMAND);
    (!is_below).then_some((role, &rest[..at], after))
}

/// An error that says what was typed without the line breaks in it.
fn escape_typed_text(mut error: clap::Error) -> clap::Error {
    let one_line = |text: &String| escape_to_one_line(text);
    let values: Vec<(ContextKind, ContextValue)> = error
        .context()
        .filter_map(|(kind, value)| match value {
            ContextValue::String(text) => Some((kind, ContextValue::String(one_line(text)))),
            ContextValue::Strings(texts) => {
                Some((kind, ContextValue::Strings(texts.iter().map(one_line).collect())))
            }
            _ => None,
        })
        .collect();
    for (kind, value) in values {
        error.insert(kind, value);
    }
    error
}

/// What the parser says, in one line. Help and version are no refusals, but come the same way.
fn parse_problem(error: &clap::Error) -> CliError {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            output::print_result(&error.render().to_string()).err().unwrap_or_else(CliError::silent)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let help = command().render_help().to_string();
            CliError::new(Exit::Usage, format!("say what to do\n\n{}", help.trim_end()))
        }
        _ => CliError::new(Exit::Usage, one_line(&error.render().to_string())),
    }
}

/// The parser's message and hints without its usage block.
fn one_line(rendered: &str) -> String {
    let said: Vec<&str> = rendered
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        .map(|line| line.trim_start_matches("error: ").trim_start_matches("tip: "))
        .collect();
    format!("{}; see --help", said.join("; ").replace(":; ", ": "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command with its path.
    fn commands(command: &clap::Command, path: &str) -> Vec<(String, clap::Command)> {
        let mut all = vec![(path.to_owned(), command.clone())];
        for sub in command.get_subcommands() {
            all.extend(commands(sub, &format!("{path} {}", sub.get_name())));
        }
        all
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_flag_has_its_environment_twin() {
        let mut flags = 0;
        for (path, command) in commands(&command(), "plimsoll") {
            for argument in command.get_arguments().filter(|argument| !argument.is_positional()) {
                let Some(long) = argument.get_long() else {
                    panic!("{path}: a flag without a name")
                };
                if matches!(long, "help" | "version") {
                    continue;
                }
                let twin = format!("PLIMSOLL_FLAG_{}", long.to_uppercase().replace('-', "_"));
                let found = argument.get_env().and_then(|name| name.to_str());
                assert_eq!(found, Some(&*twin), "{path} --{long}");
                flags += 1;
            }
        }
        assert!(flags >= 5, "only {flags} flags were looked at");
    }

    #[test]
    fn every_command_and_flag_says_what_it_is() {
        for (path, command) in commands(&command(), "plimsoll") {
            assert!(command.get_about().is_some(), "{path} has no description");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{path} {} has no help", argument.get_id());
            }
        }
    }

    #[test]
    fn help_fits_eighty_columns() {
        let examples = [
            EXAMPLES,
            admission::EXAMPLES,
            demo::EXAMPLES,
            doctor::EXAMPLES,
            explain::EXAMPLES,
            explain::pod::EXAMPLES,
            explain::vpa::EXAMPLES,
            recommender::EXAMPLES,
            all_in_one::EXAMPLES,
            status::EXAMPLES,
            updater::EXAMPLES,
            watermark::EXAMPLES,
            watermark::dry_run::EXAMPLES,
        ];
        for line in examples.into_iter().flat_map(str::lines) {
            assert!(line.chars().count() <= 80, "would be wrapped: {line}");
        }
        // Built, so that subcommands know the width too.
        let mut root = command();
        root.build();
        for (path, mut command) in commands(&root, "plimsoll") {
            for line in command.render_long_help().to_string().lines() {
                assert!(line.chars().count() <= 80, "{path}: {line}");
            }
        }
    }

    #[test]
    fn a_role_is_its_command_or_a_program_and_a_command_below_it_is_none() {
        let of = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            find_role(&words).map(|(role, before, after)| (role, before.len(), after.len()))
        };
        assert_eq!(of("plimsoll --no-color watermark -workers 1"), Some(("watermark", 1, 2)));
        assert_eq!(of("/manager -workers=1"), Some(("watermark", 0, 1)));
        assert_eq!(of("/manager dry-run list"), Some(("watermark", 0, 2)));
        assert_eq!(of("plimsoll watermark dry-run list --all"), None);
        assert_eq!(of("plimsoll crds"), None);
        let line = ["plimsoll", "watermark", "dry-run", "revert", "-f", "-"].map(OsString::from);
        assert!(parse(line).is_ok());
    }

    #[test]
    fn a_refusal_is_one_line_with_the_nearest_name() {
        let refuse = |arguments: &[&str]| {
            let arguments = std::iter::once("plimsoll").chain(arguments.iter().copied());
            let error = parse(arguments.map(OsString::from)).expect_err("refused");
            one_line(&error.render().to_string())
        };
        assert_eq!(
            refuse(&["crdz"]),
            "unrecognized subcommand 'crdz'; a similar subcommand exists: 'crds'; see --help"
        );
        assert_eq!(
            refuse(&["demo", "--sed", "1"]),
            "unexpected argument '--sed' found; a similar argument exists: '--seed'; see --help"
        );
        assert_eq!(
            refuse(&["explain", "vpa"]),
            "the following required arguments were not provided: <[NAMESPACE/]NAME>; see --help"
        );
        assert_eq!(
            refuse(&["demo", "--days", "0"]),
            "invalid value '0' for '--days <DAYS>': give a whole number from 1 to 90; see --help"
        );
        assert_eq!(
            refuse(&["demo", "--days", "1\nUsage: x"]),
            r"invalid value '1\nUsage: x' for '--days <DAYS>': give a whole number from 1 to 90; see --help"
        );
    }
}
