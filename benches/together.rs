//! All controllers of a small cluster, in separate processes and in one: `cargo xtask bench together`.
//!
//! A real control plane has VPAs, each with a Deployment, a ReplicaSet and a pod of five containers, and a
//! WatermarkPodAutoscaler in dry-run mode for every other one. Four processes with one controller each run for some
//! minutes, then a single process with all of them, also without history. The kernel's memory and CPU statistics are
//! printed side by side.
//!
//! ```text
//! cargo xtask bench together                            500 VPAs, 250 WatermarkPodAutoscalers, 3 minutes each
//! cargo xtask bench together --vpas 100 --minutes 2
//! ```
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

#[path = "scale/cluster.rs"]
#[allow(dead_code, reason = "this benchmark kills no containers")]
mod cluster;
#[path = "scale/process.rs"]
mod process;
#[allow(dead_code, unused_imports, reason = "the testbed offers what other tests need too")]
#[path = "../tests/support/mod.rs"]
mod support;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;
use serde_json::json;

use self::{
    cluster::Cluster,
    process::{Process, read_stats},
    support::{
        MetricsServer, Testbed,
        bulk_objects::{self, ApiWrite, collection},
        plimsoll_process::PlimsollProcesses,
        ports::Port,
        process_guard::ProcessState,
        skipped::report_skipped,
        upstream_process::write_certificates,
    },
};

/// metrics-server's default resolution.
const SCRAPE: Duration = Duration::from_secs(15);
const METRIC: &str = "requests";
const APART: [&str; 4] = ["recommender", "updater", "admission-controller", "watermark"];
const TOGETHER: &str = "together";
/// Maximum memory of one process relative to that of four.
const AT_MOST: f64 = 0.8;

/// All controllers of a small cluster, in separate processes and in one.
#[derive(Debug, Parser)]
struct Arguments {
    /// VPAs, each with five containers
    #[arg(long, default_value_t = 500)]
    vpas: usize,
    /// Minutes that each side runs
    #[arg(long, default_value_t = 3)]
    minutes: u64,
    /// Passed by cargo to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(reason) = PlimsollProcesses::missing_role("run") {
        report_skipped(reason);
        return ExitCode::SUCCESS;
    }
    let Some(bed) = Testbed::private().await else { return ExitCode::SUCCESS };
    define(&bed).await;
    let usage = MetricsServer::serve(&bed).await;
    let cluster = Cluster::create(&bed, arguments.vpas).await;
    create_wpas(&bed, &usage, &cluster).await;
    let ours = PlimsollProcesses::new(&bed);

    cluster.create_vpas(&bed).await;
    ours.start("recommender", &[]);
    ours.updater("updater", &[]);
    ours.webhook("admission-controller", &[]);
    ours.watermark("watermark", &[]);
    let apart = measure(&bed, &ours, &usage, &cluster, &APART, arguments.minutes).await;
    cluster.remove_vpas(&bed).await;

    cluster.create_vpas(&bed).await;
    let port = Port::claim();
    let file = write_certificates(&bed, TOGETHER);
    let flags = [
        format!("--port={port}"),
        format!("--admission-controller.client-ca-file={}", file("ca.crt")),
        format!("--admission-controller.tls-cert-file={}", file("tls.crt")),
        format!("--admission-controller.tls-private-key={}", file("tls.key")),
        "--register-webhook=false".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    ours.all_in_one(TOGETHER, &APART.join(","), &flags);
    let together = measure(&bed, &ours, &usage, &cluster, &[TOGETHER], arguments.minutes).await;

    let words: Vec<_> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    println!("\n`cargo xtask bench together {}`, {}\n", words.join(" "), process::machine());
    if print(&apart, &together[0]) <= AT_MOST {
        ExitCode::SUCCESS
    } else {
        println!("at most {AT_MOST} is promised");
        ExitCode::FAILURE
    }
}

async fn define(bed: &Testbed) {
    let definitions = plimsoll_core::api::crdgen::crds().expect("definitions");
    let writes = definitions.iter().map(|definition| {
        let definition = serde_json::to_value(definition).expect("plain data");
        ApiWrite::create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition)
    });
    bulk_objects::send(&bed.client(), writes).await;
}

/// Creates a WatermarkPodAutoscaler in dry-run mode for every other workload.
async fn create_wpas(bed: &Testbed, usage: &MetricsServer, cluster: &Cluster) {
    let writes = cluster.vpas().step_by(2).map(|workload| {
        let (namespace, name) = workload.split_once('/').expect("a namespace and a name");
        usage.set_external(namespace, METRIC, &[("app", name)], 75.0);
        let object = json!({
            "apiVersion": "datadoghq.com/v1alpha1", "kind": "WatermarkPodAutoscaler",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "minReplicas": 1, "maxReplicas": 9, "dryRun": true, "algorithm": "absolute",
                "metrics": [{"type": "External", "external": {
                    "metricName": METRIC, "metricSelector": {"matchLabels": {"app": name}},
                    "lowWatermark": "50", "highWatermark": "100",
                }}],
            },
        });
        let path = collection("datadoghq.com/v1alpha1", namespace, "watermarkpodautoscalers");
        ApiWrite::create(path, &object)
    });
    bulk_objects::send(&bed.client(), writes).await;
}

/// Runs these processes for some time, reads their statistics and stops them.
async fn measure(
    bed: &Testbed,
    ours: &PlimsollProcesses,
    usage: &MetricsServer,
    cluster: &Cluster,
    names: &[&str],
    minutes: u64,
) -> Vec<Process> {
    let begun = Instant::now();
    let mut tick = 0;
    while begun.elapsed() < Duration::from_mins(minutes) {
        usage.show(support::clock::wall_now(), cluster.samples(tick));
        tick += 1;
        tokio::time::sleep(SCRAPE).await;
        for name in names {
            ours.assert_running(name);
        }
    }
    let looked = names.iter().map(|name| match bed.process_guard().state(name) {
        Some(ProcessState::Running(id)) => read_stats(id),
        other => panic!("{name} is {other:?}"),
    });
    let looked = looked.collect();
    for name in names {
        bed.process_guard().signal(name, "TERM");
        let gone = || async {
            matches!(bed.process_guard().state(name), Some(ProcessState::Exited(_))).then_some(())
        };
        support::wait::within(Duration::from_mins(1), "it has ended", gone).await;
    }
    looked
}

/// Prints the results and returns the ratio of memory.
fn print(apart: &[Process], together: &Process) -> f64 {
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!("| | resident, MiB | peak, MiB | CPU, s |\n|---|---|---|---|");
    let row = |name: &str, it: &Process| {
        let (resident, peak) = (mebibytes(it.resident), mebibytes(it.peak));
        println!("| {name} | {resident:.1} | {peak:.1} | {:.1} |", it.cpu);
    };
    for (name, it) in APART.iter().zip(apart) {
        row(name, it);
    }
    let all = Process {
        peak: apart.iter().map(|it| it.peak).sum(),
        resident: apart.iter().map(|it| it.resident).sum(),
        cpu: apart.iter().map(|it| it.cpu).sum(),
    };
    row("these four", &all);
    row("`plimsoll run` with all four", together);
    let ratio = together.resident as f64 / all.resident as f64;
    let (peak, cpu) = (together.peak as f64 / all.peak as f64, together.cpu / all.cpu);
    println!("| one to four | {ratio:.2} | {peak:.2} | {cpu:.2} |");
    ratio.max(peak)
}
