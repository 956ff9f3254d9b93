//! Runs a role: installs the log, logs warnings about flags, and starts the async runtime.

use std::num::NonZero;

use super::{
    Exit, log,
    output::{CliError, escape_to_one_line},
};
use crate::controllers::runtime::{Signals, config::ProcessConfig};
use plimsoll_core::types::compat::Compat;

/// The settings of a role's process.
#[derive(Clone, Debug)]
pub(super) struct Daemon {
    /// The kind of role, for the log.
    pub role: &'static str,
    /// The name of the instance, if there can be several.
    pub name: Option<String>,
    /// The maximum number of worker threads. Each uses memory, and by default the runtime would start one for each core of
    /// the node.
    pub workers: usize,
    /// The compatibility mode.
    pub compat: Compat,
    /// Settings of the process: the log, and warnings to log at the start.
    pub process: ProcessConfig,
}

impl Daemon {
    /// Runs the role until a termination signal.
    pub fn run<F: Future<Output = anyhow::Result<()>>>(
        self,
        role: impl FnOnce(Signals) -> F,
    ) -> Result<Exit, CliError> {
        let log_warnings = log::install(&self.process.log)?;
        let failed = |error: String| CliError::new(Exit::Findings, escape_to_one_line(&error));
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(self.workers.min(cores))
            .enable_all()
            .build()
            .map_err(|error| failed(format!("cannot start: {error}")))?;
        let signals = {
            let _context = runtime.enter();
            Signals::listen().map_err(|error| failed(format!("cannot handle signals: {error}")))?
        };
        let version = env!("CARGO_PKG_VERSION");
        tracing::info!(version, name = self.name, compat = ?self.compat, "starting {}", self.role);
        for warning in log_warnings.iter().chain(&self.process.warnings) {
            tracing::warn!("{warning}");
        }
        // This fails if a provider is already installed, which is then also ring.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let result = runtime.block_on(role(signals));
        // Dropping the runtime would wait for blocking calls, such as a DNS lookup that does not return.
        runtime.shutdown_background();
        result.map_err(|error| failed(format!("{error:#}")))?;
        Ok(Exit::Fine)
    }
}
