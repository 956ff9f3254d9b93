//! Where the program's log goes: standard error, a file or both, as text or JSON, never in colours.

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

/// Variables that say what is logged, module by module; the first that is set counts.
const VARIABLES: [&str; 2] = ["PLIMSOLL_LOG", "RUST_LOG"];

/// Warnings and errors alone, and errors alone: below all that klog has.
pub const WARNINGS: i32 = -100;
/// Errors alone.
pub const ERRORS: i32 = -200;

/// What klog's verbosity means here. Libraries that talk about every request keep to what matters until 7.
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

/// Installs the log, and says what was not as it was asked for.
pub fn install(config: &LogConfig) -> Result<Vec<String>, CliError> {
    let mut troubles = Vec::new();
    let filter = filter(config.verbosity, |name| env::var(name).ok(), &mut troubles);
    let writer = writer(config, &mut troubles)?;
    let log =
        tracing_subscriber::fmt().with_ansi(false).with_env_filter(filter).with_writer(writer);
    let wanted = filter_fn(is_wanted);
    let installed = match config.format {
        LogFormat::Text => log.fmt_fields(EscapedFields).finish().with(wanted).try_init(),
        LogFormat::Json => log.json().flatten_event(true).finish().with(wanted).try_init(),
    };
    installed.map_err(|error| CliError::new(Exit::Internal, format!("the log: {error}")))?;
    Ok(troubles)
}

/// Whether a line is more than a repetition: the client says at each connection that no certificate is verified, and who reads
/// the kubeconfig says so once. What else comes from there has fields.
fn is_wanted(metadata: &Metadata<'_>) -> bool {
    const VERIFIER: &str = "kube_client::client::tls::rustls_tls";
    metadata.target() != VERIFIER || *metadata.level() != Level::WARN || metadata.fields().len() > 1
}

/// The environment goes before `--v` here: every manifest has `--v`, and nobody sets the variable by accident.
fn filter(
    verbosity: i32,
    variable: impl Fn(&str) -> Option<String>,
    troubles: &mut Vec<String>,
) -> EnvFilter {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(|value| (name, value));
    if let Some((name, value)) = VARIABLES.into_iter().find_map(set) {
        match EnvFilter::try_new(&value) {
            Ok(filter) => return filter,
            Err(error) => troubles.push(format!("{name}: {error}: it is ignored")),
        }
    }
    EnvFilter::new(directives(verbosity))
}

fn writer(config: &LogConfig, troubles: &mut Vec<String>) -> Result<BoxMakeWriter, CliError> {
    let Some(path) = &config.file else { return Ok(BoxMakeWriter::new(io::stderr)) };
    match OpenOptions::new().create(true).append(true).open(path) {
        Ok(file) if config.stderr => Ok(BoxMakeWriter::new(io::stderr.and(Arc::new(file)))),
        Ok(file) => Ok(BoxMakeWriter::new(Arc::new(file))),
        // Upstream ignores the file as long as it logs to standard error: a manifest that starts there starts here.
        Err(error) if config.stderr => {
            troubles.push(format!(
                "--log-file: {}: {error}: only standard error has the log",
                path.display()
            ));
            Ok(BoxMakeWriter::new(io::stderr))
        }
        Err(error) => {
            Err(CliError::new(Exit::Findings, format!("--log-file: {}: {error}", path.display())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbosity_is_klogs_and_the_environment_goes_before_it() {
        for (verbosity, set, wanted) in [
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
            assert!(filter.contains(wanted), "{verbosity}: {filter}");
        }
        let mut troubles = Vec::new();
        filter(4, |_| Some("a=b=c".into()), &mut troubles);
        assert_eq!(troubles.len(), 1, "{troubles:?}");
    }

    #[test]
    fn a_log_file_that_cannot_be_written_is_an_error_only_where_it_would_be_the_only_log() {
        let at = |stderr| LogConfig {
            verbosity: 4,
            format: LogFormat::Text,
            file: Some("/nonexistent/log".into()),
            stderr,
        };
        let mut troubles = Vec::new();
        assert!(writer(&at(true), &mut troubles).is_ok() && troubles.len() == 1);
        assert!(writer(&at(false), &mut troubles).is_err());
    }
}
