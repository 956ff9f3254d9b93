//! The command line: parses arguments into a validated configuration, runs the command and returns an exit code.
//!
//! Results go to standard output, everything else to standard error. Every flag has an environment twin
//! `PLIMSOLL_FLAG_<NAME>`; a plain `PLIMSOLL_<NAME>` could collide with the variables that Kubernetes sets for Services.

mod admission;
mod all_in_one;
mod backtest;
mod backtest_options;
mod backtest_run;
mod backtest_traces;
mod certificates;
mod cloud_identity;
mod cluster;
mod completion;
mod config_from_flags;
mod container_series;
mod crds;
mod daemon;
mod demo;
mod doctor;
mod environment;
mod explain;
mod feature_gates;
mod flag_syntax;
pub mod flags;
mod go_values;
mod horizontal;
mod hpa;
mod hpa_controller;
mod invocation;
mod klog;
pub mod log;
mod one_shot;
mod output;
mod panic_hook;
mod parsed_flags;
mod progress;
mod prometheus;
mod prometheus_auth;
mod prometheus_queries;
mod recommend;
mod recommend_options;
mod recommend_run;
mod recommender;
mod recommender_model;
mod registration;
mod report_run;
mod schema;
mod sizing;
mod status;
mod terminal;
mod ui;
mod ui_server;
mod updater;
mod updater_guards;
mod updater_policy;
mod watch;
mod watermark;
mod workload_source;

use std::ffi::OsString;

use clap::{
    Arg, FromArgMatches as _, Parser, Subcommand,
    builder::{BoolishValueParser, Resettable},
    error::{ContextKind, ContextValue, ErrorKind},
};

pub use config_from_flags::{
    admission_config, all_in_one_config, backtest_config, check, horizontal_config,
    recommend_config, recommender_config, updater_config, watermark_config,
};
pub use output::Exit;

use self::{
    flag_syntax::FlagSyntax,
    flags::{command, map_arguments},
    invocation::{Invocation, find_role},
    output::{CliError, escape_to_one_line},
    parsed_flags::ParsedFlags,
    terminal::Terminal,
};

const EXAMPLES: &str = "\
Examples:
  plimsoll demo                        simulate eight days, in seconds
  plimsoll demo --output json          the same as data
  plimsoll crds | kubectl apply -f -   install the CustomResourceDefinitions
  plimsoll recommender                 write recommendations for VPAs
  plimsoll admission-controller        apply recommendations to new pods
  plimsoll updater --dry-run           which running pods it would update
  plimsoll watermark --dry-run         which replicas it would set
  plimsoll horizontal                  compares every HPA with its controller
  plimsoll hpa adopt --assist shop/web lets it scale that HPA
  plimsoll run --roles=recommender,updater
                                       several roles in one process
  plimsoll status                      status of the roles in a cluster
  plimsoll explain vpa shop/web        how its recommendation was computed
  plimsoll explain pod shop/web-0      why the updater skips it
  plimsoll explain hpa web --watch     every 5 s, and what changed
  plimsoll doctor --prometheus-address http://localhost:9090
                                       what history a Prometheus can provide
  plimsoll doctor --cluster            what is wrong with autoscaling here
  plimsoll recommend                   what all workloads should request
  plimsoll backtest                    what policies would have meant
  plimsoll ui                          all of this as a web page
  plimsoll completion bash             completes commands, flags and names
  plimsoll schema recommend            the JSON Schema of its output

Every flag can also be set in the environment: --no-color as
PLIMSOLL_FLAG_NO_COLOR=true.
Exit codes: 0 success, 1 findings or bad input, 2 usage, 3 a bug,
4 incomplete: not everything could be read,
129, 130, 143 stopped by SIGHUP, SIGINT, SIGTERM.
Documentation: README.md and docs/ in the source.";

/// Kubernetes autoscaler suite: recommends CPU, memory and replicas for workloads, and explains why.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, after_help = EXAMPLES, max_term_width = 80)]
#[command(disable_help_subcommand = true, arg_required_else_help = true)]
struct Cli {
    /// Disables colours, as do NO_COLOR, TERM=dumb and pipes
    #[arg(long, global = true, hide_env_values = true, value_parser = BoolishValueParser::new())]
    no_color: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    AdmissionController(Box<admission::AdmissionArgs>),
    Backtest(Box<backtest::BacktestArgs>),
    Completion(completion::CompletionArgs),
    Demo(Box<demo::DemoArgs>),
    Crds(crds::CrdsArgs),
    Doctor(Box<doctor::DoctorArgs>),
    Explain(Box<explain::ExplainArgs>),
    Horizontal(Box<horizontal::HorizontalArgs>),
    Hpa(Box<hpa::HpaArgs>),
    Recommend(Box<recommend::RecommendArgs>),
    Recommender(Box<recommender::RecommenderArgs>),
    Run(all_in_one::RunArgs),
    Schema(schema::SchemaArgs),
    Status(status::StatusArgs),
    Ui(Box<ui::UiArgs>),
    Updater(Box<updater::UpdaterArgs>),
    Watermark(Box<watermark::WatermarkArgs>),
}

/// The roles, with the names of the binaries that upstream ships them as, which also start them here. Each parses its flags
/// like upstream's.
const ROLES: [(&str, &str); 5] = [
    (admission::NAME, admission::NAME),
    (horizontal::NAME, horizontal::NAME),
    (recommender::NAME, recommender::NAME),
    (updater::NAME, updater::NAME),
    (watermark::NAME, watermark::PROGRAM),
];

/// The subcommand of the watermark role.
const DRY_RUN_COMMAND: &str = "dry-run";

/// Runs the program. The first argument is the program name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    panic_hook::install();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let invocation = Invocation::of(&arguments);
    invocation.store();
    match invocation {
        Invocation::KubectlCompletion => return completion::complete_for_kubectl(&arguments[1..]),
        Invocation::ShellCompletion => return completion::complete_names(&arguments[2..]),
        Invocation::Program | Invocation::KubectlPlugin => {}
    }
    let outcome = parse(arguments).map_err(|error| parse_problem(&error)).and_then(|parsed| {
        let (Cli { no_color, command }, typed) = parsed;
        let terminal = Terminal::detect(no_color);
        match command {
            Command::AdmissionController(arguments) => admission::run(&arguments, &typed),
            Command::Backtest(arguments) => backtest::run(*arguments, &typed, &terminal),
            Command::Completion(arguments) => completion::run(&arguments),
            Command::Demo(arguments) => demo::run(*arguments, &terminal),
            Command::Crds(arguments) => crds::run(&arguments),
            Command::Doctor(arguments) => doctor::run(&arguments, &typed, &terminal),
            Command::Explain(arguments) => explain::run(&arguments, &typed, &terminal),
            Command::Horizontal(arguments) => horizontal::run(&arguments, &typed),
            Command::Hpa(arguments) => hpa::run(&arguments, &terminal),
            Command::Recommend(arguments) => recommend::run(*arguments, &typed, &terminal),
            Command::Recommender(arguments) => recommender::run(&arguments, &typed),
            Command::Run(arguments) => all_in_one::run(&arguments),
            Command::Schema(arguments) => schema::run(&arguments),
            Command::Status(arguments) => status::run(&arguments, &terminal),
            Command::Ui(arguments) => ui::run(&arguments, &typed),
            Command::Updater(arguments) => updater::run(&arguments, &typed),
            Command::Watermark(arguments) => watermark::run(&arguments, &typed, &terminal),
        }
    });
    outcome.unwrap_or_else(CliError::report)
}

/// Parses the command line and the environment. An empty variable counts as not set.
fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<(Cli, ParsedFlags), clap::Error> {
    let set = |argument: Arg| {
        let empty =
            argument.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty());
        if empty { argument.env(Resettable::Reset) } else { argument }
    };
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut command = Invocation::of(&arguments).adapt(map_arguments(command(), set));
    let (arguments, strays) = normalise_role_arguments(&mut command, arguments)?;
    let read = command.try_get_matches_from_mut(arguments).and_then(|matches| {
        let (mut command, mut innermost) = (&command, &matches);
        while let Some((name, below)) = innermost.subcommand() {
            (command, innermost) = (command.find_subcommand(name).unwrap_or(command), below);
        }
        Ok((Cli::from_arg_matches(&matches)?, ParsedFlags::of(command, innermost, strays)))
    });
    read.map_err(escape_typed_text)
}

/// Normalises the arguments of a role for clap, and returns those that are not flags. Arguments of other commands are
/// unchanged.
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
    let syntax = if role == watermark::NAME { FlagSyntax::GoFlag } else { FlagSyntax::Pflag };
    let read = flag_syntax::normalise(syntax, flags, words);
    let read =
        read.map_err(|error| command.error(ErrorKind::InvalidValue, escape_to_one_line(&error)))?;
    if role == watermark::NAME && read.ignored.first().is_some_and(|word| word == DRY_RUN_COMMAND) {
        // A misplaced dry-run must not start the controller.
        let message = "dry-run must directly follow watermark, and its flags must follow dry-run";
        return Err(command.error(ErrorKind::InvalidValue, message));
    }
    let program = std::iter::once(OsString::from("plimsoll"));
    let whole = program.chain(before.iter().cloned()).chain([role.into()]).chain(read.arguments);
    Ok((whole.collect(), read.ignored))
}

/// Escapes control characters of user input in an error.
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

/// Converts a parser error to one line. clap also returns help and version as errors; they are printed.
fn parse_problem(error: &clap::Error) -> CliError {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            output::print_result(&error.render().to_string()).err().unwrap_or_else(CliError::silent)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let help = Invocation::current().adapt(command()).render_help().to_string();
            CliError::usage(format!("a command is required\n\n{}", help.trim_end()))
        }
        _ => CliError::usage(one_line(&error.render().to_string())),
    }
}

/// The parser's message and hints in one line, without the usage block.
fn one_line(rendered: &str) -> String {
    let lines: Vec<&str> = rendered
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        .map(|line| line.trim_start_matches("error: ").trim_start_matches("tip: "))
        .collect();
    format!("{}; see --help", lines.join("; ").replace(":; ", ": "))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn every_flag_has_an_environment_variable() {
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
    fn every_command_and_flag_has_a_help_text() {
        for (path, command) in commands(&command(), "plimsoll") {
            assert!(command.get_about().is_some(), "{path} has no description");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{path} {} has no help", argument.get_id());
            }
        }
    }

    #[test]
    fn help_fits_80_columns() {
        let examples = [
            EXAMPLES,
            admission::EXAMPLES,
            backtest::EXAMPLES,
            completion::EXAMPLES,
            demo::EXAMPLES,
            doctor::EXAMPLES,
            doctor::HPA_EXAMPLES,
            explain::EXAMPLES,
            explain::POD_EXAMPLES,
            explain::VPA_EXAMPLES,
            horizontal::EXAMPLES,
            hpa::EXAMPLES,
            recommend::EXAMPLES,
            recommender::EXAMPLES,
            all_in_one::EXAMPLES,
            schema::EXAMPLES,
            status::EXAMPLES,
            ui::EXAMPLES,
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
    fn an_error_is_one_line_with_the_nearest_valid_name() {
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
