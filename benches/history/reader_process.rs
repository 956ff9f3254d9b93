//! One side: a process of its own that is told what to do, does it, and says what it took.

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

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// Nobody: everything is set up, and nothing is read.
    Idle,
    /// The requests that ours makes, through the same door; what comes is dropped.
    Unread,
    /// The same without any client of ours, and uncompressed.
    Curl,
    /// Ours.
    Ours,
    /// Ours, on one thread, with all allocations counted.
    Counted,
    /// The plain client crate.
    Plain,
}

/// What a process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    pub side: Side,
    pub url: String,
    /// When history ends, in seconds.
    pub end: i64,
    pub hours: u32,
    pub mix: WorkloadMix,
    pub queries: usize,
    pub budget: u64,
    /// The requests of ours.
    pub requests: PathBuf,
    /// Whether ours writes them down.
    pub records: bool,
}

/// What it took. Sizes are in bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    pub seconds: f64,
    /// Seconds of CPU, since the process began.
    pub cpu: f64,
    /// Seconds of CPU of the server meanwhile.
    pub server: f64,
    /// The most memory that was resident.
    pub peak: u64,
    /// Resident at the end.
    pub resident: u64,
    pub requests: u64,
    pub points: u64,
    /// Of the answers, after decompression.
    pub bytes: u64,
    /// Histories that came of it.
    pub histories: u64,
    /// The most memory that was allocated at once, and what is left of it: where that is counted.
    pub allocated: Option<(u64, u64)>,
}

// === impl Task ===

impl Task {
    /// Has a process of its own do it.
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
        let said = String::from_utf8_lossy(&output.stdout);
        let figures = said.lines().last().and_then(|line| serde_json::from_str(line).ok());
        figures.unwrap_or_else(|| panic!("{:?} failed: {output:?}", self.side))
    }

    /// Does it in this process.
    pub fn perform(&self) -> Figures {
        // Somebody else may have installed one, and then it is the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut figures = if self.side == Side::Counted {
            self.count()
        } else {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(self.read())
        };
        let own = process::look(std::process::id());
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
                // It is still there when memory is looked at: so is the other one.
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

    /// Allocations are counted for each thread by itself, so everything is on this one.
    fn count(&self) -> Figures {
        let mut kept = None;
        let counted = allocation_counter::measure(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime");
            kept = Some(runtime.block_on(async {
                let mut recommender = Recommender::set_up(self).await;
                let figures = timed(recommender.load(self)).await;
                (recommender.into_state(), figures)
            }));
        });
        let (state, mut figures) = kept.expect("it was read");
        let left = u64::try_from(counted.bytes_current).unwrap_or_default();
        figures.allocated = Some((counted.bytes_max, left));
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
    /// That of the run in the middle, by time; with the most memory of all runs.
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
        if let Some((most, left)) = self.allocated {
            let (most, left) = (mebibytes(most), mebibytes(left));
            write!(f, ", {most:.0} MiB allocated at most and {left:.0} MiB left")?;
        }
        Ok(())
    }
}
