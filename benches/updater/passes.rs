//! One updater at a time as a process on a bed: what its passes take, by its own metrics and by the kernel.

use std::time::Duration;

use super::{
    figures::Run,
    process,
    support::{
        Bed,
        fetch::fetch,
        keeper::State,
        not_run::not_run,
        ours::Ours,
        peers::Side,
        upstream::{Role, Upstream},
        wait,
    },
};

/// Between two looks at its metrics.
const LOOK: Duration = Duration::from_millis(200);
const LATENCY: &str = "vpa_updater_execution_latency_seconds";
const EVICTED: &str = "vpa_updater_evicted_pods_total";

/// Both updaters, ready to be started.
#[derive(Debug)]
pub struct Updaters {
    bed: Bed,
    upstream: Upstream,
    ours: Ours,
    flags: Vec<String>,
}

/// The name of a side, with the bed's keeper and in words.
pub const fn name(side: Side) -> &'static str {
    match side {
        Side::Upstream => "upstream",
        Side::Ours => "ours",
    }
}

impl Updaters {
    /// Creates the definitions on a bed. `None` after noting what is missing.
    pub async fn on(bed: &Bed, flags: Vec<String>) -> Option<Self> {
        if let Some(reason) = Ours::lacks("updater") {
            not_run(reason);
            return None;
        }
        let upstream = Upstream::on(bed).await?;
        Some(Self { bed: bed.clone(), upstream, ours: Ours::on(bed), flags })
    }

    /// Runs one until so many passes have ended, so many seconds after each other.
    pub async fn run(&self, side: Side, interval: u32, passes: u32) -> Run {
        let interval = format!("--updater-interval={interval}s");
        let flags = self.flags.iter().chain([&interval]);
        let flags: Vec<&str> = flags.map(String::as_str).collect();
        let port = match side {
            Side::Upstream => self.upstream.start_as(name(side), Role::Updater, &flags),
            Side::Ours => {
                let all: Vec<&str> = flags.into_iter().chain(["--compat=upstream"]).collect();
                self.ours.updater(name(side), &all)
            }
        };
        let address = format!("http://127.0.0.1:{port}/metrics");
        let seen = self.until(side, &address, passes).await;
        let Some(State::Running(id)) = self.bed.keeper().state(name(side)) else {
            panic!("{} ended", name(side));
        };
        let process = process::look(id);
        self.bed.keeper().signal(name(side), "KILL");
        wait::until(&format!("{} ends", name(side)), || async {
            let state = self.bed.keeper().state(name(side));
            matches!(state, Some(State::Exited(_))).then_some(())
        })
        .await;
        Run { evicted: seen.evicted, pass: seen.seconds / seen.passes, process }
    }

    /// What its metrics say once so many passes have ended.
    async fn until(&self, side: Side, address: &str, passes: u32) -> Seen {
        loop {
            let keeper = self.bed.keeper();
            if let Some(State::Exited(code)) = keeper.state(name(side)) {
                panic!("{} ended with {code}\n{}", name(side), keeper.log_tail(name(side), 15));
            }
            if let Some(body) = fetch(address).await {
                let seen = Seen::of(&String::from_utf8_lossy(&body));
                if seen.passes >= f64::from(passes) {
                    return seen;
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// What its metrics say.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    passes: f64,
    /// Of all of them together.
    seconds: f64,
    evicted: f64,
}

impl Seen {
    fn of(text: &str) -> Self {
        let mut seen = Self::default();
        for line in text.lines() {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            let is_total = series.contains("step=\"total\"");
            match series.split_once('{').map_or(series, |(name, _)| name) {
                family if family == EVICTED => seen.evicted += value,
                family if is_total && family.strip_suffix("_sum") == Some(LATENCY) => {
                    seen.seconds = value;
                }
                family if is_total && family.strip_suffix("_count") == Some(LATENCY) => {
                    seen.passes = value;
                }
                _ => {}
            }
        }
        seen
    }
}
