//! The control plane of testbeds is real, and is cleaned up.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use xtask::test_programs;

use crate::support::process_guard::ProcessState;
use crate::support::skipped::report_skipped;
use crate::support::{Testbed, wait};

/// Set for a child process that holds a testbed until it is killed.
const HOLD: &str = "PLIMSOLL_HOLD_A_BED";
/// Timeout for another process to get a slot and start a testbed.
const STARTUP_TIMEOUT: Duration = Duration::from_mins(3);

#[tokio::test]
async fn a_testbed_starts_and_responds() {
    let Some(bed) = Testbed::shared().await else { return };
    let version = bed.client().apiserver_version().await.expect("the server answers");
    assert_eq!(version.major, "1", "{}", version.git_version);
    if let Some(built) = test_programs::control_plane().expect("it runs").version {
        assert_eq!(version.git_version, built);
    }
}

#[tokio::test]
async fn tests_on_the_shared_testbed_have_their_own_namespaces() {
    let Some(bed) = Testbed::shared().await else { return };
    let (one, two) = (bed.namespace("twin").await, bed.namespace("twin").await);
    assert_ne!(one, two);
}

#[tokio::test]
async fn a_service_account_has_only_the_permissions_of_its_rbac() {
    let Some(bed) = Testbed::shared().await else { return };
    let namespace = bed.namespace("rbac").await;
    let account = bed.service_account(&namespace, "nobody").await;
    let maps = Api::<ConfigMap>::namespaced(account.client, &namespace);
    let refusal = maps.create(&PostParams::default(), &ConfigMap::default()).await;
    let Err(kube::Error::Api(status)) = refusal else { panic!("not refused: {refusal:?}") };
    assert_eq!(status.code, 403, "{}", status.message);
}

#[tokio::test]
async fn a_killed_api_server_restarts_with_its_data() {
    let Some(bed) = Testbed::api_server_only().await else { return };
    let namespace = bed.namespace("outage").await;
    bed.control_plane().kill_api_server().await;
    bed.client().apiserver_version().await.expect_err("connection refused");
    bed.control_plane().restart_api_server().await;
    let maps = Api::<ConfigMap>::namespaced(bed.client(), &namespace);
    let map = ConfigMap { metadata: named("kept"), ..ConfigMap::default() };
    maps.create(&PostParams::default(), &map).await.expect("the namespace is still there");
}

#[tokio::test]
async fn a_dropped_testbed_leaves_nothing() {
    let Some(bed) = Testbed::private().await else { return };
    let folder = bed.process_guard().folder().to_owned();
    let processes = processes(&bed);
    drop(bed);
    assert!(!folder.exists());
    assert!(processes.iter().all(|id| !runs(*id)));
}

#[tokio::test]
async fn killing_or_interrupting_the_owner_of_a_testbed_leaves_nothing() {
    if std::env::var_os(HOLD).is_some() {
        return hold_until_killed().await;
    }
    if let Err(reason) = test_programs::control_plane() {
        return report_skipped(format!("{reason:#}"));
    }
    for signal in ["KILL", "INT"] {
        // The test runner may ignore interrupts, and a child would inherit that.
        let mut holder = Command::new("env")
            .arg("--default-signal=INT")
            .arg(std::env::current_exe().expect("this program"))
            .args(["--exact", "--nocapture", "--test-threads=1"])
            .arg("testbed::deep::control_plane::killing_or_interrupting_the_owner_of_a_testbed_leaves_nothing")
            .env(HOLD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("this program starts again");
        let mut lines = BufReader::new(holder.stdout.take().expect("piped")).lines();
        let held = async {
            while let Some(line) = lines.next_line().await.expect("text") {
                if let Some((_, held)) = line.split_once("holds ") {
                    return held.to_owned();
                }
            }
            panic!("the other process ended without a testbed");
        };
        let held =
            tokio::time::timeout(STARTUP_TIMEOUT, held).await.expect("it has a testbed in time");
        let (folder, ids) = held.split_once(' ').expect("a folder and processes");
        let ids: Vec<u32> = ids.split(' ').map(|id| id.parse().expect("a number")).collect();
        assert!(Path::new(folder).exists() && ids.iter().all(|id| runs(*id)));

        let id = holder.id().expect("it was not waited for").to_string();
        let killed = Command::new("kill").args(["-s", signal, &id]).status().await;
        assert!(killed.expect("kill starts").success());
        wait::until(&format!("all is gone after {signal}"), || {
            let ended = holder.try_wait().expect("a status").is_some();
            let gone = ended && !Path::new(folder).exists() && ids.iter().all(|id| !runs(*id));
            std::future::ready(gone.then_some(()))
        })
        .await;
    }
}

/// Holds a testbed until this process is killed, or the parent test ends.
async fn hold_until_killed() {
    let bed = Testbed::private().await.expect("the parts are there");
    let ids: Vec<_> = processes(&bed).iter().map(ToString::to_string).collect();
    let held = format!("{} {}", bed.process_guard().folder().display(), ids.join(" "));
    std::mem::forget(bed);
    writeln!(std::io::stdout(), "holds {held}").expect("the other process listens");
    // The kernel closes the other end, even if the parent is killed.
    tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await.expect("readable");
}

/// The processes of a testbed.
fn processes(bed: &Testbed) -> Vec<u32> {
    let mut names = vec!["etcd", "kube-apiserver"];
    if bed.control_plane().has_controllers {
        names.extend(["kube-controller-manager", "kube-scheduler"]);
    }
    let id = |name: &&str| match bed.process_guard().state(name) {
        Some(ProcessState::Running(id)) => id,
        state => panic!("{name} does not run: {state:?}"),
    };
    names.iter().map(id).collect()
}

/// Whether a process runs. A zombie does not.
fn runs(id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn named(name: &str) -> kube::api::ObjectMeta {
    kube::api::ObjectMeta { name: Some(name.to_owned()), ..Default::default() }
}
