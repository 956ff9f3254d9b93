//! `plimsoll demo`: its flags, and the run.

use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use clap::Args;
use parking_lot::Mutex;
use plimsoll_storage::{Storage, local::LocalStorage};

use super::{
    Exit,
    one_shot::first_signal,
    output::{self, CliError, OutputFormat},
    panic_hook,
    progress::Progress,
    recommender_model::ModelArgs,
    terminal::Terminal,
};
use crate::report::demo::{
    self, Config, DemoError, DemoReport, ProgressObserver, Scenario, scenario_run::MOST_DAYS, text,
};

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll demo                       eight days, as tables and sparklines
  plimsoll demo --seed 7 --days 30    other load, for a longer time
  plimsoll demo --output json         the same as data

The JSON follows docs/schema/demo.v1.json.";

/// Simulates the same days twice, without and with recommendations
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DemoArgs {
    /// Seed of the load: the same seed gives the same load on every machine
    #[arg(long, default_value_t = 42, hide_env_values = true)]
    seed: u64,
    /// Number of simulated days, 1 to 90
    #[arg(long, default_value_t = 8, hide_env_values = true, value_parser = parse_days)]
    days: u32,
    /// Output format
    #[arg(long, short, default_value = "text", hide_env_values = true)]
    output: OutputFormat,
    /// Keep the recommender's history in this directory, which must hold none yet
    #[arg(long, value_name = "DIR", hide_env_values = true)]
    keep_store: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
}

fn parse_days(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|days| (1..=MOST_DAYS).contains(days))
        .ok_or_else(|| format!("give a whole number from 1 to {MOST_DAYS}"))
}

pub fn run(arguments: DemoArgs, terminal: &Terminal) -> Result<Exit, CliError> {
    let DemoArgs { seed, days, output, keep_store, model } = arguments;
    let config = Config { seed, days, store: keep_store, settings: model.settings() };
    match output {
        OutputFormat::Text => output::print_result(&text::opening(&config, &terminal.style))?,
        // Standard output is only for the data.
        OutputFormat::Json => {
            output::print_note(&format!("simulating {days} days twice, seed {seed}"));
        }
    }
    let report = run_demo(&config, terminal)?;
    let result = match output {
        OutputFormat::Text => text::outcome(&report, &terminal.style),
        OutputFormat::Json => output::json(&report)?,
    };
    output::print_result(&result)?;
    Ok(Exit::Fine)
}

/// Runs both simulations on another thread, so that a signal can cancel them. The temporary directory is removed however
/// the run ends.
fn run_demo(config: &Config, terminal: &Terminal) -> Result<DemoReport, CliError> {
    let failed = |error| format!("cannot start the demo: {error}");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(failed)?;
    // Handle signals before there is anything to clean up.
    let first_signal = runtime.block_on(async { first_signal() }).map_err(failed)?;
    let mut store = StoreDirectory::prepare(config)?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut observer = DemoObserver {
        progress: Progress::new(terminal.stderr_is_tty, terminal.columns, terminal.style.glyphs),
        stop: Arc::clone(&stop),
    };
    let directory = store.path.clone();
    let demo_config = config.clone();
    let opened = Mutex::new(store.opened.take());
    let mut exit = Exit::Interrupted;
    let outcome = runtime.block_on(async {
        // Use the store that was opened and checked before the start.
        let open = move || {
            let opened = opened
                .lock()
                .take()
                .map_or_else(|| LocalStorage::open(&directory).map(|(local, _)| local), Ok);
            opened.map(|local| Box::new(local) as Box<dyn Storage>)
        };
        let simulation =
            tokio::spawn(async move { demo::run(&demo_config, &open, &mut observer).await });
        tokio::pin!(simulation);
        tokio::select! {
            outcome = &mut simulation => outcome,
            signal_exit = first_signal => {
                exit = signal_exit;
                stop.store(true, Ordering::Relaxed);
                simulation.await
            }
        }
    });
    match outcome {
        Ok(Ok(report)) => Ok(report),
        Ok(Err(DemoError::Interrupted)) => Err(CliError::new(exit, "interrupted")),
        Ok(Err(failure @ DemoError::Workloads(_))) => {
            Err(CliError::new(Exit::Internal, failure.to_string()))
        }
        Ok(Err(DemoError::Storage(plimsoll_storage::Error::Unavailable { place: at, why }))) => {
            // The demo does not retry.
            let left = if store.temporary.is_some() {
                "no files are left"
            } else {
                "files saved before are left there: remove them before the next run"
            };
            Err(format!("{at}: {why}; the demo stopped, and {left}").into())
        }
        Ok(Err(failure)) => Err(failure.to_string().into()),
        Err(error) => Err(CliError::new(Exit::Internal, error.to_string())),
    }
}

/// The directory that stores the history during the demo.
struct StoreDirectory {
    path: PathBuf,
    /// Removes the directory on drop, unless the user has given it.
    temporary: Option<tempfile::TempDir>,
    /// The store, opened when the directory was checked, until it is used.
    opened: Option<LocalStorage>,
    /// A lock against other demos, for the time when a restart closes the store.
    _claim: Option<File>,
}

impl StoreDirectory {
    fn prepare(config: &Config) -> Result<Self, CliError> {
        let Some(path) = config.store.clone() else {
            let made = tempfile::Builder::new().prefix("plimsoll-demo-").tempdir();
            let temporary = made.map_err(|error| {
                DemoError::StoreUnavailable { place: std::env::temp_dir(), error }.to_string()
            })?;
            let path = temporary.path().to_owned();
            panic_hook::remove_on_panic(Some(path.clone()));
            return Ok(Self { path, temporary: Some(temporary), opened: None, _claim: None });
        };
        let refused = |error: plimsoll_storage::Error| format!("--keep-store: {error}");
        let (local, report) = LocalStorage::open(&path).map_err(refused)?;
        let claim = lock_directory(&path)?;
        if report.records > 0 || report.damage.is_some() {
            let failure = DemoError::NotEmpty { place: path, records: report.records };
            return Err(failure.to_string().into());
        }
        Ok(Self { path, temporary: None, opened: Some(local), _claim: claim })
    }
}

impl Drop for StoreDirectory {
    fn drop(&mut self) {
        panic_hook::remove_on_panic(None);
    }
}

/// Locks the directory itself, because the store releases its own lock at every restart. If the directory cannot be opened
/// or its file system has no locks, only the store's lock is used.
fn lock_directory(place: &Path) -> Result<Option<File>, CliError> {
    let Ok(directory) = File::open(place) else { return Ok(None) };
    match directory.try_lock() {
        Ok(()) => Ok(Some(directory)),
        Err(TryLockError::WouldBlock) => Err(format!(
            "--keep-store: {}: in use by another demo: use a different directory",
            place.display()
        )
        .into()),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

struct DemoObserver {
    progress: Progress,
    stop: Arc<AtomicBool>,
}

impl ProgressObserver for DemoObserver {
    fn hour(&mut self, life: Scenario, hour: u32, of: u32) {
        self.progress.show(life, hour, of);
    }

    fn is_cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
