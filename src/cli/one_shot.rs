//! What commands share that read a cluster or a server once: flags, a message while they wait, and the report.

use std::{
    fmt::Display,
    io::{self, Write as _},
};

use clap::Args;
use serde::Serialize;

use super::{
    Exit,
    output::{self, CliError, OutputFormat},
    terminal::Terminal,
};
use crate::{
    controllers::runtime::command_client::{self, Cluster, ClusterOptions},
    report::style::Style,
};

/// The cluster to read, and the output format.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    #[command(flatten)]
    pub cluster: ClusterOptions,
    /// Output format
    #[arg(long, short, value_name = "FORM", default_value = "text")]
    output: OutputFormat,
}

impl ReportArgs {
    /// Connects to the cluster and makes a report, with a message until it is done.
    pub fn read<R, E: Display>(
        &self,
        user_agent: &'static str,
        terminal: &Terminal,
        message: &str,
        report: impl AsyncFnOnce(Cluster) -> Result<R, E>,
    ) -> Result<R, CliError> {
        let _spinner = Spinner::start(terminal, message);
        block_on(async {
            let connected = command_client::connect(&self.cluster, user_agent).await;
            let cluster = connected.map_err(CliError::failed)?;
            report(cluster).await.map_err(CliError::failed)
        })
    }

    pub fn print<R: Serialize>(
        &self,
        terminal: &Terminal,
        report: &R,
        render: impl FnOnce(&R, &Style) -> String,
        is_fine: bool,
    ) -> Result<Exit, CliError> {
        output::print_result(&match self.output {
            OutputFormat::Text => render(report, &terminal.style),
            OutputFormat::Json => output::json(report)?,
        })?;
        Ok(if is_fine { Exit::Fine } else { Exit::Findings })
    }
}

/// Runs a future on a runtime of its own.
pub fn block_on<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    // This fails if a provider is already installed, which is then also ring.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::failed(format!("cannot start: {error}")))?;
    runtime.block_on(work)
}

/// A line on standard error that is cleared on drop. Shown only on a terminal.
#[derive(Debug)]
pub struct Spinner(bool);

impl Spinner {
    pub fn start(terminal: &Terminal, message: &str) -> Self {
        if terminal.stderr_is_tty {
            // Ignore errors: the message is optional.
            let _ = write!(io::stderr(), "{message} ...");
            let _ = io::stderr().flush();
        }
        Self(terminal.stderr_is_tty)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        if self.0 {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
