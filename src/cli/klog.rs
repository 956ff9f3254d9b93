//! The flags of klog, upstream's logging library, and our own log flags.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::{go_values, parsed_flags::NoEffect};
use crate::controllers::runtime::config::{LogConfig, LogFormat};

/// The log flags.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Logging")]
pub struct LogArgs {
    /// Log verbosity: 0 and 1 for little, 2 to 4 for events, 5 and 6 for details, 7 and above for everything
    #[arg(long, short, value_name = "LEVEL", default_value = "4", value_parser = level)]
    v: i32,
    /// Log format: `text` or `json`
    #[arg(long, value_name = "FORM", default_value = "text")]
    log_format: LogFormat,
    /// Logs to standard error
    #[arg(long, action = ArgAction::Set, value_name = "BOOL", default_value = "true")]
    #[arg(hide_short_help = true)]
    logtostderr: bool,
    /// Logs to standard error even if --logtostderr=false
    #[arg(long, hide_short_help = true)]
    alsologtostderr: bool,
    /// Also appends the log to this file
    #[arg(long, value_name = "FILE", default_value = "", value_parser = go_values::path())]
    #[arg(hide_short_help = true)]
    log_file: PathBuf,
    /// Accepted, without effect: log files are not rotated
    #[arg(long, value_name = "MEGABYTES", default_value = "1800", hide_short_help = true)]
    #[arg(value_parser = NoEffect::checked(go_values::integer_between(0, i64::MAX)))]
    log_file_max_size: NoEffect,
    /// Accepted, without effect: name a file with --log-file
    #[arg(long, value_name = "DIR", default_value = "", hide_short_help = true)]
    #[arg(value_parser = NoEffect::checked(go_values::path()))]
    log_dir: NoEffect,
    /// Accepted, without effect: --v determines what is logged to standard error
    #[arg(long, value_name = "SEVERITY", default_value = "info", hide_short_help = true)]
    #[arg(value_parser = NoEffect::checked(severity))]
    stderrthreshold: NoEffect,
    /// Accepted, without effect: --v determines what is logged to standard error
    #[arg(long, value_name = "SEVERITY", default_value = "", hide_short_help = true)]
    #[arg(value_parser = NoEffect::checked(severity))]
    alsologtostderrthreshold: NoEffect,
    /// Accepted, without effect: --v determines what is logged to standard error
    #[arg(long, value_name = "BOOL", default_value = "true", hide_short_help = true)]
    #[arg(value_parser = NoEffect::checked(go_values::boolean))]
    legacy_stderr_threshold_behavior: NoEffect,
    /// Accepted, without effect: there are no stack traces
    #[arg(long, value_name = "PLACE", default_value = ":0", hide_short_help = true)]
    #[arg(value_parser = NoEffect::checked(place))]
    log_backtrace_at: NoEffect,
    /// Accepted, without effect: PLIMSOLL_LOG sets the level of each module
    #[arg(long, value_name = "PATTERNS", default_value = "", hide_short_help = true)]
    #[arg(value_parser = NoEffect::checked(patterns))]
    vmodule: NoEffect,
    /// Accepted, without effect: log lines have no header
    #[arg(long, value_name = "BOOL", default_value = "false", hide_default_value = true)]
    #[arg(value_parser = NoEffect::checked(go_values::boolean), hide_short_help = true)]
    add_dir_header: NoEffect,
    /// Accepted, without effect: log lines have no header
    #[arg(long, value_name = "BOOL", default_value = "false", hide_default_value = true)]
    #[arg(value_parser = NoEffect::checked(go_values::boolean), hide_short_help = true)]
    skip_headers: NoEffect,
    /// Accepted, without effect: log files have no header
    #[arg(long, value_name = "BOOL", default_value = "false", hide_default_value = true)]
    #[arg(value_parser = NoEffect::checked(go_values::boolean), hide_short_help = true)]
    skip_log_headers: NoEffect,
    /// Accepted, without effect: there is one log file for all severities
    #[arg(long, value_name = "BOOL", default_value = "false", hide_default_value = true)]
    #[arg(value_parser = NoEffect::checked(go_values::boolean), hide_short_help = true)]
    one_output: NoEffect,
}

impl LogArgs {
    pub fn log(&self) -> LogConfig {
        let file = Some(self.log_file.clone()).filter(|path| !path.as_os_str().is_empty());
        LogConfig {
            verbosity: self.v,
            format: self.log_format,
            stderr: self.logtostderr || self.alsologtostderr || file.is_none(),
            file,
        }
    }
}

fn level(text: &str) -> Result<i32, String> {
    text.parse().map_err(|_| "give a whole number such as 4".to_owned())
}

fn severity(text: &str) -> Result<(), String> {
    let named = ["INFO", "WARNING", "ERROR", "FATAL"].contains(&&*text.to_uppercase());
    let is_valid = named || text.is_empty() || text.parse::<i32>().is_ok();
    is_valid.then_some(()).ok_or_else(|| "use info, warning, error or fatal".to_owned())
}

fn place(text: &str) -> Result<(), String> {
    let line = |line: &str| line.parse::<u64>().ok();
    let is_valid = text.split_once(':').is_some_and(|(file, at)| match line(at) {
        Some(0) => file.is_empty(),
        Some(_) => file.contains('.'),
        None => false,
    });
    let wanted = || "give a source location such as main.go:62".to_owned();
    (is_valid || text.is_empty()).then_some(()).ok_or_else(wanted)
}

fn patterns(text: &str) -> Result<(), String> {
    let is_valid = |pattern: &str| {
        pattern
            .split_once('=')
            .is_some_and(|(name, level)| !name.is_empty() && level.parse::<u32>().is_ok())
    };
    let are_valid = text.split(',').filter(|pattern| !pattern.is_empty()).all(is_valid);
    let wanted = || "give patterns such as recommender=5,history=2".to_owned();
    are_valid.then_some(()).ok_or_else(wanted)
}
