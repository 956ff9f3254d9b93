//! A reader in its own process, which receives a task, runs it and reports its cost.

use std::{
    fmt,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::{
    discarded_responses, plain_client, plimsoll_reader::Recommender, process,
    workload_mix::WorkloadMix,
};

/// A reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// Sets everything up and reads nothing.
    Idle,
    /// Sends Plimsoll's requests with its transport, and discards the responses.
    Unread,
    /// Sends the same requests without Plimsoll's client and without compression.
    Curl,
    /// Plimsoll.
    Ours,
    /// Plimsoll on one thread, with all allocations counted.
    Counted,
    /// The plain client crate.
    Plain,
}

/// The task of a reader process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    pub side: Side,
    pub url: String,
    /// End of the history, in seconds since the Unix epoch.
    pub end: i64,
    pub hours: u32,
    pub mix: WorkloadMix,
    pub queries: usize,
    pub budget: u64,
    /// File with Plimsoll's requests.
    pub requests: PathBuf,
    /// Whether Plimsoll records its requests.
    pub records: bool,
}

/// The cost of a task. Sizes are in bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    pub seconds: f64,
    /// CPU seconds of the process since its start.
    pub cpu: f64,
    /// CPU seconds of the server during the task.
    pub server: f64,
    /// Peak resident memory.
    pub peak: u64,
    /// Resident memory at the end.
    pub resident: u64,
    pub requests: u64,
    pub points: u64,
    /// Size of the responses after decompression.
    pub bytes: u64,
    /// Number of histories that were loaded.
    pub histories: u64,
    /// Peak and final allocated memory, if allocations are counted.
    pub allocated: Option<(u64, u64)>,
}

// === impl Task ===

impl Task {
    /// Runs the task in its own process.
    pub async fn run(&self) -> Figures {
        let words = serde_json::to_string(self).expect("plain data");
        let program = std::env::current_exe().expect("this program");
        let output = Command::new(program)
            .args(["--child", &words])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .expect("it starts");
        let stdout = String::from_utf8_lossy(&output.stdout);
        let figures = stdout.lines().last().and_then(|line| serde_json::from_str(line).ok());
        figures.unwrap_or_else(|| panic!("{:?} failed: {output:?}", self.side))
    }

    /// Runs the task in this process.
    pub fn perform(&self) -> Figures {
        // Another task may have installed the same provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut figures = if self.side == Side::Counted {
            self.count()
        } else {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(self.read())
        };
        let own = process::read_stats(std::process::id());
        (figures.cpu, figures.peak, figures.resident) = (own.cpu, own.peak, own.resident);
        figures
    }

    async fn read(&self) -> Figures {
        match self.side {
            Side::Unread => timed(discarded_responses::read_with_transport(self)).await,
            Side::Curl => timed(discarded_responses::read_as_curl(self)).await,
            Side::Plain => timed(plain_client::read(self)).await,
            Side::Idle => {
                let idle = Recommender::set_up(self).await;
                // Keep the state alive while memory is measured, as the other readers do.
                std::mem::forget(idle);
                Figures::default()
            }
            Side::Ours | Side::Counted => {
                let mut recommender = Recommender::set_up(self).await;
                let figures = timed(recommender.load(self)).await;
                std::mem::forget(recommender);
                figures
            }
        }
    }

    /// Allocations are counted per thread, so everything runs on this thread.
    fn count(&self) -> Figures {
        let mut result = None;
        let counted = allocation_counter::measure(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime");
            result = Some(runtime.block_on(async {
                let mut recommender = Recommender::set_up(self).await;
                let figures = timed(recommender.load(self)).await;
                (recommender.into_state(), figures)
            }));
        });
        let (state, mut figures) = result.expect("the task has run");
        let remaining = u64::try_from(counted.bytes_current).unwrap_or_default();
        figures.allocated = Some((counted.bytes_max, remaining));
        std::mem::forget(state);
        figures
    }
}

async fn timed(read: impl Future<Output = Figures>) -> Figures {
    let begun = Instant::now();
    let figures = read.await;
    Figures { seconds: begun.elapsed().as_secs_f64(), ..figures }
}

// === impl Figures ===

impl Figures {
    /// The run with the median duration, with the peak memory of all runs.
    pub fn median(mut runs: Vec<Self>) -> Self {
        let peak = runs.iter().map(|run| run.peak).max().unwrap_or_default();
        runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let middle = runs.len() / 2;
        Self { peak, ..runs.into_iter().nth(middle).unwrap_or_default() }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        write!(
            f,
            "{:.1?}, {:.1} s of CPU, {:.1} of the server's, {:.0} MiB peak, {:.0} MiB now",
            Duration::from_secs_f64(self.seconds),
            self.cpu,
            self.server,
            mebibytes(self.peak),
            mebibytes(self.resident)
        )?;
        if self.requests > 0 {
            let megabytes = self.bytes as f64 / 1e6;
            write!(f, ", {} requests, {megabytes:.0} MB", self.requests)?;
        }
        if self.points > 0 {
            write!(f, ", {:.1} M points", self.points as f64 / 1e6)?;
        }
        if let Some((most, remaining)) = self.allocated {
            let (most, remaining) = (mebibytes(most), mebibytes(remaining));
            write!(f, ", {most:.0} MiB allocated at most and {remaining:.0} MiB left")?;
        }
        Ok(())
    }
}
