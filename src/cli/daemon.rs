//! Runs a role: installs the log, logs warnings about flags, and starts the async runtime.

use std::num::NonZero;

use super::{Exit, log, one_shot::start_runtime, output::CliError};
use crate::controllers::{
    self,
    runtime::{Signals, config::ProcessConfig, controller::ControllerConfig},
};
use plimsoll_core::types::compat::Compat;

#[derive(Clone, Debug)]
pub(super) struct Daemon {
    pub role: &'static str,
    /// The name of the instance, if there can be several.
    pub name: Option<String>,
    /// The maximum number of worker threads. Each uses memory, and by default the runtime would start one for each core of
    /// the node.
    pub workers: usize,
    pub compat: Compat,
    /// Settings of the process: the log, and warnings to log at the start.
    pub process: ProcessConfig,
}

pub(super) fn run_controller<C: ControllerConfig>(
    role: &'static str,
    name: Option<String>,
    workers: usize,
    compat: Compat,
    config: C,
) -> Result<Exit, CliError> {
    let daemon = Daemon { role, name, workers, compat, process: config.process().clone() };
    daemon.run(|signals| controllers::run(config, signals))
}

impl Daemon {
    pub fn run<F: Future<Output = anyhow::Result<()>>>(
        self,
        role: impl FnOnce(Signals) -> F,
    ) -> Result<Exit, CliError> {
        let log_warnings = log::install(&self.process.log)?;
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let runtime = start_runtime(self.workers.min(cores))?;
        let signals = {
            let _context = runtime.enter();
            Signals::listen()
                .map_err(|error| CliError::failed(format!("cannot handle signals: {error}")))?
        };
        let version = env!("CARGO_PKG_VERSION");
        tracing::info!(version, name = self.name, compat = ?self.compat, "starting {}", self.role);
        for warning in log_warnings.iter().chain(&self.process.warnings) {
            tracing::warn!("{warning}");
        }
        let result = runtime.block_on(role(signals));
        // Dropping the runtime would wait for blocking calls, such as a DNS lookup that does not return.
        runtime.shutdown_background();
        result.map_err(|error| CliError::failed(format!("{error:#}")))?;
        Ok(Exit::Fine)
    }
}
