//! Runs a role as a process, for tests that kill or freeze it.

use std::{fs, path::Path};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::fixture::{flags, metric_sum};
use crate::support::{Testbed, http_get::http_get, ports::Port, process_guard::ProcessState, wait};

/// The shortest passes possible, for workloads without a cooldown.
pub const FAST_FLAGS: &[&str] = &[
    "--updater-interval=300ms",
    "--cool-down=0",
    "--canary-watch=0",
    // A disruption that was recorded but never made would delay the others for 15 minutes.
    "--max-unproven-evictions=0",
];

/// A Lease that expires soon after its holder freezes, but survives a machine that stalls for some seconds.
pub const SHORT_LEASE_FLAGS: &[&str] = &[
    "--leader-elect-lease-duration=9s",
    "--leader-elect-renew-deadline=6s",
    "--leader-elect-retry-period=1s",
];

/// A Lease that outlives any stall of the machine: its holder keeps it until it exits. See [`expire_lease`].
pub const LONG_LEASE_FLAGS: &[&str] = &[
    "--leader-elect-lease-duration=120s",
    "--leader-elect-renew-deadline=100s",
    "--leader-elect-retry-period=1s",
];

/// Shortens the Lease of a dead holder to one second, so that the next leader does not wait two minutes.
pub async fn expire_lease(bed: &Testbed, namespace: &str, name: &str) {
    let leases = Api::<Lease>::namespaced(bed.client(), namespace);
    let soon = Patch::Merge(json!({"spec": {"leaseDurationSeconds": 1}}));
    leases.patch(name, &PatchParams::default(), &soon).await.expect("patched");
}

/// A process, possibly restarted.
pub struct RoleProcess {
    bed: Testbed,
    name: String,
    port: Port,
    /// Length of the log when this process started.
    began: usize,
}

impl RoleProcess {
    /// Starts a process on a namespace, with a name that is unique on that testbed.
    pub fn start(
        bed: &Testbed,
        name: &str,
        namespace: &str,
        kubeconfig: &Path,
        more: &[&str],
    ) -> Self {
        Self::start_role(bed, &format!("{name}-of-{namespace}"), &[], |port| {
            let mut arguments = vec!["updater".to_owned()];
            arguments.extend(flags(namespace, more));
            // The last value counts.
            arguments.push(format!("--address=127.0.0.1:{port}"));
            arguments.push(format!("--kubeconfig={}", kubeconfig.display()));
            arguments
        })
    }

    /// Starts a role with these arguments; it listens on the port given in them.
    pub fn start_role(
        bed: &Testbed,
        name: &str,
        environment: &[(&str, &str)],
        arguments: impl FnOnce(u16) -> Vec<String>,
    ) -> Self {
        let (port, name) = (Port::claim(), name.to_owned());
        let began = read_log(bed, &name).len();
        let program = Path::new(env!("CARGO_BIN_EXE_plimsoll"));
        bed.process_guard().start(&name, program, &arguments(port.number()), environment);
        Self { bed: bed.clone(), name, port, began }
    }

    /// Returns the address of its metrics.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns one of its metrics; `None` while it does not respond.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> Option<f64> {
        let page = http_get(&format!("http://127.0.0.1:{}/metrics", self.port)).await?;
        Some(metric_sum(&String::from_utf8_lossy(&page), name, labels))
    }

    /// Waits until it has made this many more passes; only the leader makes passes.
    pub async fn wait_for_passes(&self, more: u32) {
        let passes = || self.metric("vpa_updater_execution_latency_seconds_count", TOTAL);
        let before = wait::until("it responds", passes).await;
        wait::until_ok("passes finish", || async {
            let now = passes().await.ok_or_else(|| self.log())?;
            if now >= before + f64::from(more) { Ok(()) } else { Err(self.log()) }
        })
        .await;
    }

    /// Waits until it is ready, whether it is the leader or not.
    pub async fn wait_until_ready(&self) {
        wait::until_ok("it is ready", || async {
            let answer = http_get(&format!("http://127.0.0.1:{}/readyz", self.port)).await;
            let answer = answer.ok_or_else(|| self.log())?;
            if &*answer == b"ok\n" { Ok(()) } else { Err(format!("{answer:?}")) }
        })
        .await;
    }

    /// Waits until this process has logged a line with all of these words.
    pub async fn wait_for_log(&self, words: &[&str]) {
        wait::until_ok(&format!("it logs {words:?}"), || async {
            let log = self.log();
            let found = log.lines().any(|line| words.iter().all(|word| line.contains(word)));
            if found { Ok(()) } else { Err(log) }
        })
        .await;
    }

    /// Returns the log of this process.
    pub fn log(&self) -> String {
        read_log(&self.bed, &self.name).split_off(self.began)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: &str) {
        self.bed.process_guard().signal(&self.name, signal);
    }

    /// Sends a signal, waits for the end of the process, and returns its exit code.
    pub async fn end(self, signal: &str) -> i32 {
        self.signal(signal);
        wait::until("it has ended", || async {
            match self.bed.process_guard().state(&self.name)? {
                ProcessState::Exited(code) => Some(code),
                ProcessState::Running(_) => None,
            }
        })
        .await
    }
}

const TOTAL: &[&str] = &["step=\"total\""];

impl Drop for RoleProcess {
    fn drop(&mut self) {
        self.signal("KILL");
    }
}

fn read_log(bed: &Testbed, name: &str) -> String {
    String::from_utf8_lossy(&fs::read(bed.process_guard().log(name)).unwrap_or_default())
        .into_owned()
}
