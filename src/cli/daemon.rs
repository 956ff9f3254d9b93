//! How every role runs behind its command: its log, what was odd about its flags, and the runtime that it lives in.

use std::num::NonZero;

use super::{
    Exit, log,
    output::{CliError, escape_to_one_line},
};
use crate::controllers::runtime::{Signals, config::LogConfig};
use plimsoll_core::types::compat::Compat;

/// What every role is started with.
#[derive(Clone, Debug)]
pub(super) struct Daemon {
    /// What it is.
    pub role: &'static str,
    /// What it is called, where there may be several.
    pub name: Option<String>,
    /// Threads that its work is spread over, at most. Each has memory of its own, and by itself the runtime would start
    /// one for each core of the node.
    pub workers: usize,
    /// Whose behaviour is wanted.
    pub compat: Compat,
    /// Where words about its work go.
    pub log: LogConfig,
    /// What was given and should be looked at.
    pub warnings: Vec<String>,
}

impl Daemon {
    /// Runs the role until it is told to end.
    pub fn run<F: Future<Output = anyhow::Result<()>>>(
        self,
        role: impl FnOnce(Signals) -> F,
    ) -> Result<Exit, CliError> {
        let troubles = log::install(&self.log)?;
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
        tracing::info!(version, name = self.name, compat = ?self.compat, "the {} starts", self.role);
        for warning in troubles.iter().chain(&self.warnings) {
            tracing::warn!("{warning}");
        }
        // Somebody else may have installed one, and then it is the same: there is only ring in this program.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let ended = runtime.block_on(role(signals));
        // Dropped, it would wait for calls that block, such as a look-up of a name that no server answers.
        runtime.shutdown_background();
        ended.map_err(|error| failed(format!("{error:#}")))?;
        Ok(Exit::Fine)
    }
}
