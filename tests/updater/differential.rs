//! The differential of the updaters: upstream's and ours look after the same pods, at the same time, each on a way on
//! which all that it writes is a rehearsal. Whatever they do differently outside of a list fails.
//!
//! `PLIMSOLL_SEED=n` replays a run, `PLIMSOLL_PEER=upstream` puts a second process of upstream's in the place of ours:
//! what then differs is the fault of this test.

mod compare;
mod pods;
mod rehearsal;
mod scenario;
mod surroundings;
mod told;
mod vpas;

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use tokio::sync::OnceCell;

use self::compare::{Findings, LISTED, Urgencies};
use self::rehearsal::{Asked, Passes, Rehearsal};
use self::scenario::{Scenario, Subject};
use self::told::{families, is_counted_more, urgencies, values};
use crate::support::fetch::fetch;
use crate::support::keeper::State;
use crate::support::not_run::not_run;
use crate::support::ours::Ours;
use crate::support::upstream::{Role, Upstream};
use crate::support::{Bed, fleet, noise, wait};

const NAMESPACES: usize = 8;
const WORKLOADS: usize = 112;
/// From pass to pass, which is also what a pass may take. The longer ones are for machines on which it takes more.
const INTERVALS: [Duration; 3] =
    [Duration::from_secs(8), Duration::from_secs(24), Duration::from_secs(72)];

/// What both are told, beside what every run needs, and how long they go on.
#[derive(Debug)]
struct Part {
    flags: &'static [&'static str],
    passes: Passes,
    /// Whether boosts are taken back.
    unboosts: bool,
}

const PARTS: [Part; 2] = [
    Part {
        flags: &["--feature-gates=CPUStartupBoost=true,InPlace=true"],
        // The second one knows which resizes were impossible in the first.
        passes: Passes { idle: 1, made: 2 },
        unboosts: true,
    },
    Part {
        flags: &[
            "--feature-gates=PerVPAConfig=true",
            "--eviction-tolerance=1",
            "--in-place-skip-disruption-budget=true",
            "--min-replicas=1",
            "--pod-update-threshold=0.3",
            "--in-recommendation-bounds-eviction-lifetime-threshold=1h",
            "--evict-after-oom-threshold=30m",
        ],
        passes: Passes { idle: 0, made: 1 },
        unboosts: false,
    },
];

/// What one updater did.
#[derive(Debug)]
struct Made {
    asked: Vec<Asked>,
    elsewhere: Vec<String>,
    metrics: String,
    log: String,
}

/// Upstream's, and the other one's.
type Play = [Made; 2];

#[derive(Debug)]
struct Run {
    scenario: Scenario,
    plays: Vec<Play>,
}

/// Both tests look at the same rehearsal.
static RUN: OnceCell<Option<Run>> = OnceCell::const_new();

#[tokio::test]
#[expect(clippy::print_stdout, reason = "what was found, and how much there was")]
async fn upstreams_updater_and_ours_touch_the_same_pods_in_the_same_order() {
    let Some(run) = run().await else { return };
    let mut listed = [0; LISTED.len()];
    for ([theirs, ours], part) in run.plays.iter().zip(&PARTS) {
        let urgencies: Urgencies = urgencies(&theirs.log);
        let sides = [&*theirs.asked, &*ours.asked];
        let how = (part.passes.made, part.unboosts);
        let found = Findings::of(&run.scenario, sides, &urgencies, how);
        let flags = part.flags;
        println!(
            "{flags:?}: {:?}; {} VPAs in order, {} with ties",
            found.deeds, found.ordered, found.tied
        );
        let count = found.unlisted.len();
        let first: Vec<_> = found.unlisted.iter().take(5).map(String::as_str).collect();
        assert!(count == 0, "{flags:?}: {count} differences\n{}", first.concat());
        assert!(found.tied < WORKLOADS / 10, "{} have no order", found.tied);
        assert!(found.ordered > WORKLOADS / 8, "only {} have an order", found.ordered);
        for (name, least) in
            [("evict 201", 20), ("evict 429", 3), ("resize 200", 20), ("resize 422", 3)]
        {
            let seen = found.deeds.get(name).copied().unwrap_or_default();
            assert!(seen >= least, "{flags:?}: only {seen} of {name}: {:?}", found.deeds);
        }
        for (all, more) in listed.iter_mut().zip(found.listed) {
            *all += more;
        }
        assert!(ours.elsewhere.is_empty(), "{:?}", ours.elsewhere);
    }
    for (listed, found) in LISTED.iter().zip(listed) {
        println!("{found} times: {}", listed.reason);
        // Another seed need not draw it.
        let is_drawn = is_ours() && std::env::var_os(noise::SEED).is_none();
        assert!(found > 0 || !is_drawn, "is not found any more: {}", listed.reason);
    }
}

#[tokio::test]
async fn upstreams_updater_and_ours_tell_prometheus_the_same() {
    let Some(run) = run().await else { return };
    for ([theirs, ours], part) in run.plays.iter().zip(&PARTS) {
        let flags = part.flags;
        // The end of a boost is rehearsed as often as each thinks fit, because it never comes to pass.
        let boosted =
            run.scenario.subjects.iter().filter(|subject| {
                part.unboosts && subject.kinds.iter().any(|kind| kind.is_boosted)
            });
        let boosted: HashSet<&str> = boosted.map(|subject| &*subject.workload.name).collect();
        let counts = |series: &str| {
            let vpa = series.split_once("vpa_name=\"").map_or("", |(_, name)| name);
            let vpa = vpa.split(['"', '-']).next().unwrap_or_default();
            !(series.contains("_in_place_") && boosted.contains(vpa))
        };
        let (one, other) = (values(&theirs.metrics), values(&ours.metrics));
        let all: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
        let differ: Vec<_> = all
            .into_iter()
            .filter(|series| counts(series))
            .map(|series| (series, one.get(series), other.get(series)))
            .filter(|(series, one, other)| one != other && !is_counted_more(series, *one, *other))
            .collect();
        assert!(one.len() > WORKLOADS / 2, "only {} series", one.len());
        let of: Vec<String> = run
            .scenario
            .subjects
            .iter()
            .filter(|subject| {
                let name = format!("vpa_name=\"{}", subject.workload.name);
                differ.iter().any(|(series, ..)| series.contains(&name))
            })
            .map(Subject::described)
            .collect();
        assert!(
            differ.is_empty(),
            "{flags:?}: {} differ\n{differ:#?}\n{}",
            differ.len(),
            of.concat()
        );
    }
    let [theirs, ours] =
        [0, 1].map(|side| families(run.plays.iter().map(move |play| &*play[side].metrics)));
    assert_eq!(theirs, ours);
    // One is about resizes that are known to be impossible, which not every seed draws.
    let least = if std::env::var_os(noise::SEED).is_none() { 14 } else { 13 };
    assert!((least..=14).contains(&theirs.len()), "{theirs:#?}");
}

fn is_ours() -> bool {
    std::env::var("PLIMSOLL_PEER").as_deref() != Ok("upstream")
}

async fn run() -> Option<&'static Run> {
    let mut is_first = false;
    let run = RUN.get_or_init(|| {
        is_first = true;
        rehearse()
    });
    let run = run.await.as_ref();
    if run.is_none() && !is_first {
        not_run("what both tests look at could not be made");
    }
    run
}

#[expect(clippy::print_stdout, reason = "the seed replays what failed")]
async fn rehearse() -> Option<Run> {
    let seed = noise::seed(6);
    println!("{}={seed}", noise::SEED);
    let bed = Bed::private().await?;
    let upstream = Upstream::on(&bed).await?;
    if let Some(reason) = Ours::lacks("updater") {
        not_run(reason);
        return None;
    }
    let mut namespaces = Vec::new();
    for _ in 0..NAMESPACES {
        namespaces.push(bed.namespace("team").await);
    }
    fleet::end_controllers(&bed).await;
    fleet::send(&bed.client(), [fleet::create_definition()]).await;
    let scenario = Scenario::draw(seed, WORKLOADS, &namespaces);
    for round in scenario.rounds() {
        fleet::send(&bed.client(), round).await;
    }
    let ours = Ours::on(&bed);
    let mut plays = Vec::new();
    for (number, part) in PARTS.iter().enumerate() {
        let mut play = None;
        for interval in INTERVALS {
            let name = format!("{number}-{}", interval.as_secs());
            let (made, longest) =
                play_once(&bed, (&upstream, &ours), &scenario, &name, part, interval).await;
            play = Some(made);
            if longest < interval * 9 / 10 {
                break;
            }
            println!("a pass took {longest:?}: once more, with more time");
        }
        plays.extend(play);
    }
    Some(Run { scenario, plays })
}

/// Has both make their passes; also says how long the longest pass took.
async fn play_once(
    bed: &Bed,
    (upstream, ours): (&Upstream, &Ours),
    scenario: &Scenario,
    name: &str,
    part: &Part,
    interval: Duration,
) -> (Play, Duration) {
    let names = [format!("upstream-{name}"), format!("peer-{name}")];
    let passes = part.passes;
    let ways = [
        Rehearsal::start(bed, &names[0], passes).await,
        Rehearsal::start(bed, &names[1], passes).await,
    ];
    let ports: Vec<u16> = (0..2)
        .map(|side| {
            let mut flags: Vec<String> = part.flags.iter().map(ToString::to_string).collect();
            flags.extend([
                format!("--kubeconfig={}", ways[side].kubeconfig.display()),
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
        ways.iter().all(Rehearsal::is_over).then_some(())
    })
    .await;
    let mut made = Vec::new();
    let mut longest = Duration::ZERO;
    let boosted = boosted(scenario);
    for (way, (name, port)) in ways.iter().zip(names.iter().zip(ports)) {
        let address = format!("http://127.0.0.1:{port}/metrics");
        let page = wait::until("it answers a scrape", || fetch(&address)).await;
        bed.keeper().signal(name, "KILL");
        wait::until("it has ended", || async {
            matches!(bed.keeper().state(name), Some(State::Exited(_))).then_some(())
        })
        .await;
        let asked = way.asked();
        let in_turn = asked.iter().filter(|one| one.pass > 0);
        let in_turn = in_turn.filter(|one| {
            one.pod()
                .is_none_or(|(namespace, pod)| !boosted.contains(&format!("{namespace}/{pod}")))
        });
        longest = in_turn.map(|one| one.after).fold(longest, Duration::max);
        let log = std::fs::read(bed.keeper().log(name)).expect("it wrote one");
        made.push(Made {
            asked,
            elsewhere: way.elsewhere().into_iter().collect(),
            metrics: String::from_utf8_lossy(&page).into_owned(),
            log: String::from_utf8_lossy(&log).into_owned(),
        });
    }
    let made = made.try_into().expect("there are two sides");
    (made, longest)
}

/// Pods that something on them says are boosted, by namespace and name: those are asked about at any time.
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
