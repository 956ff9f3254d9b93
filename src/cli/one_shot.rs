//! What commands share that read a cluster or a server once, or repeatedly with `--watch`: flags, a message
//! while they wait, and the report.

use std::{
    fmt::Display,
    io::{self, Write as _},
    time::Duration,
};

use clap::Args;
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};

use super::{
    Exit,
    output::{self, CliError, OutputFormat},
    terminal::Terminal,
    watch::{WatchArgs, WatchView, repeat},
};
use crate::{
    cluster::clock::Clock,
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
        program: &str,
        terminal: &Terminal,
        message: &str,
        report: impl AsyncFnOnce(Cluster) -> Result<R, E>,
    ) -> Result<R, CliError> {
        let _spinner = Spinner::start(terminal, message);
        block_on(async {
            let cluster = connect(&self.cluster, program).await?;
            report(cluster).await.map_err(CliError::failed)
        })
    }

    /// Connects to the cluster, makes a report and prints it; with `--watch` again and again on the same
    /// connection, until a signal.
    pub fn show<R: Serialize, E: Display>(
        &self,
        watch: WatchArgs,
        (program, message): (&str, &str),
        terminal: &Terminal,
        mut report: impl AsyncFnMut(Cluster) -> Result<R, E>,
        (render, is_fine): (impl Fn(&R, &Style) -> String, impl FnOnce(&R) -> bool),
    ) -> Result<Exit, CliError> {
        let Some(interval) = watch.watch else {
            let report = self.read(program, terminal, message, report)?;
            return self.print(terminal, &report, render, is_fine(&report));
        };
        block_on(async {
            let cluster = connect(&self.cluster, program).await?;
            let read = async || report(cluster.clone()).await;
            watch_report(interval, self.output, (terminal, message), read, render).await
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

pub async fn connect(options: &ClusterOptions, program: &str) -> Result<Cluster, CliError> {
    command_client::connect(options, program).await.map_err(CliError::failed)
}

/// Connects to the cluster and runs `work`, with a message until it is connected.
pub fn with_cluster<T>(
    options: &ClusterOptions,
    program: &str,
    terminal: &Terminal,
    work: impl AsyncFnOnce(Cluster) -> Result<T, CliError>,
) -> Result<T, CliError> {
    block_on(async {
        let spinner = Spinner::start(terminal, "connecting to the cluster");
        let cluster = connect(options, program).await?;
        drop(spinner);
        work(cluster).await
    })
}

/// Reads a report every interval and prints it, until a signal, whose exit code it returns. A failed reading
/// is reported and does not end it. The message is shown until the first reading has ended.
pub async fn watch_report<R: Serialize, E: Display>(
    interval: Duration,
    format: OutputFormat,
    (terminal, message): (&Terminal, &str),
    mut read: impl AsyncFnMut() -> Result<R, E>,
    render: impl Fn(&R, &Style) -> String,
) -> Result<Exit, CliError> {
    let stop = first_signal()
        .map_err(|error| CliError::failed(format!("cannot handle signals: {error}")))?;
    let mut spinner = Some(Spinner::start(terminal, message));
    let mut view = WatchView::new(interval, format);
    let show = |reading: Result<R, E>| {
        drop(spinner.take());
        let screen = terminal.screen();
        let (style, rows) =
            screen.as_ref().map_or((&terminal.style, None), |(style, rows)| (style, Some(*rows)));
        let frame = view.frame(Clock::wall().now(), reading, (style, rows), &render)?;
        if let Some(warning) = &frame.warning {
            output::print_warning(warning);
        }
        output::print_result(&frame.result)
    };
    repeat(interval, stop, async || read().await, show).await
}

/// Handles SIGINT, SIGTERM and SIGHUP. The future returns the exit code for the first of them.
pub fn first_signal() -> io::Result<impl Future<Output = Exit>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => Exit::Interrupted,
            _ = terminate.recv() => Exit::Terminated,
            _ = hangup.recv() => Exit::HungUp,
        }
    })
}

pub fn block_on<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = start_runtime(2)?;
    let result = runtime.block_on(work);
    // Requests and replays that are not finished must not delay the exit.
    runtime.shutdown_background();
    result
}

/// Starts a runtime with this number of worker threads, and sets up TLS.
pub fn start_runtime(workers: usize) -> Result<Runtime, CliError> {
    // This fails if a provider is already installed, which is then also ring.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = Builder::new_multi_thread().worker_threads(workers).enable_all().build();
    runtime.map_err(|error| CliError::failed(format!("cannot start: {error}")))
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
