//! Runs both updaters live: upstream's and Plimsoll's handle the same pods at the same time, each behind a proxy that turns
//! all writes into dry runs.
//!
//! `cargo xtask record updater` makes it record what upstream did. With the seed of the recording, it checks that upstream
//! still behaves as recorded.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use jiff::Timestamp;

use super::assertions::ComparedPair;
use super::dry_run_proxy::DryRunProxy;
use super::exported_metrics::{updater_metrics, urgencies};
use super::recording::{Recording, golden};
use super::scenario::Scenario;
use super::{DifferentialPart, NAMESPACES, PARTS, SEED, UpdaterActions, WORKLOADS};
use crate::support::clock::wall_now;
use crate::support::http_get::http_get;
use crate::support::plimsoll_process::PlimsollProcesses;
use crate::support::process_guard::ProcessState;
use crate::support::skipped::report_skipped;
use crate::support::upstream_process::{Role, UpstreamProcesses};
use crate::support::upstream_recording::is_recording;
use crate::support::{Testbed, bulk_objects, random, wait};

/// Intervals between passes, which also limit a pass. The longer ones are for slow machines.
const INTERVALS: [Duration; 3] =
    [Duration::from_secs(8), Duration::from_secs(24), Duration::from_secs(72)];

/// What both updaters did in a run.
#[derive(Debug)]
pub struct LiveRun {
    /// The scenario of the run.
    pub scenario: Scenario,
    /// The parts of the run.
    pub parts: Vec<LivePart>,
    /// What both updaters read.
    pub read: BTreeSet<String>,
}

/// What both updaters did in one part.
#[derive(Debug)]
pub struct LivePart {
    /// Start of the part.
    pub began: Timestamp,
    /// Upstream's actions, and the other updater's.
    pub sides: [UpdaterActions; 2],
    read: BTreeSet<String>,
}

#[tokio::test]
async fn upstreams_updater_and_plimsoll_change_the_same_pods_and_export_the_same_metrics() {
    let seed = random::seed(SEED);
    let is_usual = seed == SEED;
    let Some((bed, run)) = run_both(seed).await else { return };
    if is_recording() {
        assert!(is_usual && is_ours(), "record with seed {SEED} and Plimsoll as the other updater");
        golden(seed).write(&Recording::of(&bed.client(), &run).await);
    }
    let sides: Vec<_> = run.parts.iter().map(|part| part.sides.each_ref()).collect();
    let live = ComparedPair { label: "live", is_ours: is_ours(), is_usual };
    live.assert_same(&run.scenario, &sides);
    if is_usual {
        let recording: Recording = golden(seed).read();
        let recorded = recording.parts.iter().zip(&run.parts);
        let sides: Vec<_> = recorded.map(|(one, other)| [&one.theirs, &other.sides[0]]).collect();
        let recorded = ComparedPair { label: "upstream as recorded", is_ours: false, is_usual };
        recorded.assert_same(&run.scenario, &sides);
    }
}

fn is_ours() -> bool {
    std::env::var("PLIMSOLL_PEER").as_deref() != Ok("upstream")
}

#[expect(clippy::print_stdout, reason = "the seed replays what failed")]
async fn run_both(seed: u64) -> Option<(Testbed, LiveRun)> {
    println!("{}={seed}", random::SEED);
    let bed = Testbed::private().await?;
    let upstream = UpstreamProcesses::new(&bed).await?;
    if let Some(reason) = PlimsollProcesses::missing_role("updater") {
        report_skipped(reason);
        return None;
    }
    for name in NAMESPACES {
        bulk_objects::create_namespace(&bed, name).await;
    }
    bulk_objects::stop_controllers(&bed).await;
    bulk_objects::send(&bed.client(), [bulk_objects::create_definition()]).await;
    let scenario = Scenario::draw(seed, WORKLOADS, &NAMESPACES, wall_now());
    for round in scenario.rounds() {
        bulk_objects::send(&bed.client(), round).await;
    }
    let ours = PlimsollProcesses::new(&bed);
    let mut parts = Vec::new();
    for (number, part) in PARTS.iter().enumerate() {
        let mut played = None;
        for interval in INTERVALS {
            let name = format!("{number}-{}", interval.as_secs());
            let (actions, longest) =
                run_part(&bed, (&upstream, &ours), &scenario, &name, part, interval).await;
            played = Some(actions);
            if longest < interval * 9 / 10 {
                break;
            }
            println!("a pass took {longest:?}: once more, with more time");
        }
        parts.extend(played);
    }
    let read = parts.iter().flat_map(|part| part.read.iter().cloned()).collect();
    Some((bed, LiveRun { scenario, parts, read }))
}

/// Runs the passes of both updaters; also returns the duration of the longest pass.
async fn run_part(
    bed: &Testbed,
    (upstream, ours): (&UpstreamProcesses, &PlimsollProcesses),
    scenario: &Scenario,
    name: &str,
    part: &DifferentialPart,
    interval: Duration,
) -> (LivePart, Duration) {
    let names = [format!("upstream-{name}"), format!("peer-{name}")];
    let passes = part.passes;
    let proxies = [
        DryRunProxy::start(bed, &names[0], passes).await,
        DryRunProxy::start(bed, &names[1], passes).await,
    ];
    let began = wall_now();
    let ports: Vec<u16> = (0..2)
        .map(|side| {
            let mut flags: Vec<String> = part.flags.iter().map(ToString::to_string).collect();
            flags.extend([
                format!("--kubeconfig={}", proxies[side].kubeconfig.display()),
                format!("--updater-interval={}s", interval.as_secs()),
                "--kube-api-qps=1000".to_owned(),
                "--kube-api-burst=1000".to_owned(),
                "--v=2".to_owned(),
            ]);
            let is_upstream = side == 0 || !is_ours();
            if !is_upstream {
                flags.push("--compat=upstream".to_owned());
            }
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            if is_upstream {
                upstream.start_as(&names[side], Role::Updater, &flags)
            } else {
                ours.updater(&names[side], &flags)
            }
        })
        .collect();
    let patience = interval * 6 + wait::PATIENCE;
    wait::within(patience, "both have made their passes", || async {
        for name in &names {
            upstream.assert_running(name);
        }
        proxies.iter().all(DryRunProxy::is_over).then_some(())
    })
    .await;
    let mut actions = Vec::new();
    let mut longest = Duration::ZERO;
    let boosted = boosted(scenario);
    for (proxy, (name, port)) in proxies.iter().zip(names.iter().zip(ports)) {
        let address = format!("http://127.0.0.1:{port}/metrics");
        let page = wait::until("it responds to a scrape", || http_get(&address)).await;
        bed.process_guard().signal(name, "KILL");
        wait::until("it has ended", || async {
            matches!(bed.process_guard().state(name), Some(ProcessState::Exited(_))).then_some(())
        })
        .await;
        let asked = proxy.asked();
        let in_turn = asked.iter().filter(|write| write.pass > 0);
        let in_turn = in_turn.filter(|write| {
            write
                .pod()
                .is_none_or(|(namespace, pod)| !boosted.contains(&format!("{namespace}/{pod}")))
        });
        longest = in_turn.map(|write| write.after).fold(longest, Duration::max);
        let log = std::fs::read(bed.process_guard().log(name)).expect("written");
        actions.push(UpdaterActions {
            asked,
            elsewhere: proxy.elsewhere().into_iter().collect(),
            metrics: updater_metrics(&String::from_utf8_lossy(&page)),
            urgencies: urgencies(&String::from_utf8_lossy(&log)),
        });
    }
    let sides = actions.try_into().expect("there are two sides");
    let read = proxies.iter().flat_map(DryRunProxy::read).collect();
    (LivePart { began, sides, read }, longest)
}

/// Pods marked as boosted, by namespace and name: requests for those come at any time.
fn boosted(scenario: &Scenario) -> HashSet<String> {
    let mut names = HashSet::new();
    for subject in &scenario.subjects {
        for (number, &kind) in (0..).zip(&subject.pods) {
            if subject.kinds[kind].is_boosted {
                let name = subject.workload.pod_name(number);
                names.insert(format!("{}/{name}", subject.workload.namespace));
            }
        }
    }
    names
}
