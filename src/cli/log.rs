//! Installs the log: to standard error, a file or both, as text or JSON, without colours.

mod fields;

use std::{env, fs::OpenOptions, io, sync::Arc};

use tracing::{Level, Metadata};
use tracing_subscriber::{
    EnvFilter,
    filter::filter_fn,
    fmt::writer::{BoxMakeWriter, MakeWriterExt as _},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

pub use self::fields::EscapedFields;
use super::{Exit, output::CliError};
use crate::controllers::runtime::config::{LogConfig, LogFormat};

/// Environment variables with a filter per module. The first one that is set applies.
const VARIABLES: [&str; 2] = ["PLIMSOLL_LOG", "RUST_LOG"];

/// Verbosity for warnings and errors only, below all klog levels.
pub const WARNINGS: i32 = -100;
/// Verbosity for errors only.
pub const ERRORS: i32 = -200;

/// Maps klog's verbosity to filter directives. Libraries that log every request stay at `info` below 7.
fn directives(verbosity: i32) -> &'static str {
    match verbosity {
        ERRORS => "error",
        WARNINGS => "warn",
        ..=1 => "warn,plimsoll=info",
        2..=4 => "info",
        5..=6 => "debug,h2=info,hyper=info,hyper_util=info,rustls=info,tower=info",
        7.. => "trace",
    }
}

/// Installs the log. Returns warnings about settings that could not be applied.
pub fn install(config: &LogConfig) -> Result<Vec<String>, CliError> {
    let mut warnings = Vec::new();
    let filter = filter(config.verbosity, |name| env::var(name).ok(), &mut warnings);
    let writer = writer(config, &mut warnings)?;
    let log =
        tracing_subscriber::fmt().with_ansi(false).with_env_filter(filter).with_writer(writer);
    let wanted = filter_fn(is_wanted);
    let installed = match config.format {
        LogFormat::Text => log.fmt_fields(EscapedFields).finish().with(wanted).try_init(),
        LogFormat::Json => log.json().flatten_event(true).finish().with(wanted).try_init(),
    };
    installed.map_err(|error| {
        CliError::new(Exit::Internal, format!("cannot install the log: {error}"))
    })?;
    Ok(warnings)
}

/// Filters out a repeated warning: the client warns at each connection that certificates are not verified, which is already
/// logged once when the kubeconfig is read. Other warnings of that module have fields.
fn is_wanted(metadata: &Metadata<'_>) -> bool {
    const VERIFIER: &str = "kube_client::client::tls::rustls_tls";
    metadata.target() != VERIFIER || *metadata.level() != Level::WARN || metadata.fields().len() > 1
}

/// The environment takes precedence over `--v`: every manifest sets `--v`, while a variable is always set on purpose.
fn filter(
    verbosity: i32,
    variable: impl Fn(&str) -> Option<String>,
    warnings: &mut Vec<String>,
) -> EnvFilter {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(|value| (name, value));
    if let Some((name, value)) = VARIABLES.into_iter().find_map(set) {
        match EnvFilter::try_new(&value) {
            Ok(filter) => return filter,
            Err(error) => warnings.push(format!("ignoring {name}: {error}")),
        }
    }
    EnvFilter::new(directives(verbosity))
}

fn writer(config: &LogConfig, warnings: &mut Vec<String>) -> Result<BoxMakeWriter, CliError> {
    let Some(path) = &config.file else { return Ok(BoxMakeWriter::new(io::stderr)) };
    match OpenOptions::new().create(true).append(true).open(path) {
        Ok(file) if config.stderr => Ok(BoxMakeWriter::new(io::stderr.and(Arc::new(file)))),
        Ok(file) => Ok(BoxMakeWriter::new(Arc::new(file))),
        // Upstream ignores such a file if it also logs to standard error. Manifests that work there must work here.
        Err(error) if config.stderr => {
            warnings.push(format!(
                "--log-file: {}: {error}: logging to standard error only",
                path.display()
            ));
            Ok(BoxMakeWriter::new(io::stderr))
        }
        Err(error) => Err(format!("--log-file: {}: {error}", path.display()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbosity_has_the_levels_of_klog_and_the_environment_takes_precedence() {
        for (verbosity, set, expected) in [
            (ERRORS, None, "error"),
            (WARNINGS, None, "warn"),
            (-1, None, "plimsoll=info,warn"),
            (1, None, "plimsoll=info,warn"),
            (4, None, "info"),
            (6, None, "debug"),
            (9, None, "trace"),
            (9, Some(("PLIMSOLL_LOG", "plimsoll=debug")), "plimsoll=debug"),
            (4, Some(("RUST_LOG", "kube=trace")), "kube=trace"),
            (4, Some(("PLIMSOLL_LOG", "")), "info"),
        ] {
            let variable =
                |name: &str| set.filter(|(known, _)| *known == name).map(|(_, value)| value.into());
            let filter = filter(verbosity, variable, &mut Vec::new()).to_string();
            assert!(filter.contains(expected), "{verbosity}: {filter}");
        }
        let mut warnings = Vec::new();
        filter(4, |_| Some("a=b=c".into()), &mut warnings);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }

    #[test]
    fn an_unwritable_log_file_is_an_error_only_if_it_is_the_only_log() {
        let at = |stderr| LogConfig {
            verbosity: 4,
            format: LogFormat::Text,
            file: Some("/nonexistent/log".into()),
            stderr,
        };
        let mut warnings = Vec::new();
        assert!(writer(&at(true), &mut warnings).is_ok() && warnings.len() == 1);
        assert!(writer(&at(false), &mut warnings).is_err());
    }
}
