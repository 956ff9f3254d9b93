//! Runs a role as a process, for tests that kill or freeze it.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{
    captured_log::assert_line,
    http_get::{http_get, metric_sum},
    ports::Port,
    process_guard::ProcessState,
    testbed::Testbed,
    wait,
};

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
    /// Another process may have its name by now.
    has_ended: AtomicBool,
}

impl RoleProcess {
    /// Starts a role with these arguments, under a name that is unique on that testbed; it serves metrics on the port in
    /// the arguments.
    pub fn start(
        bed: &Testbed,
        name: &str,
        environment: &[(&str, &str)],
        arguments: impl FnOnce(u16) -> Vec<String>,
    ) -> Self {
        let (port, name) = (Port::claim(), name.to_owned());
        let began = read_log(bed, &name).len();
        let program = Path::new(env!("CARGO_BIN_EXE_plimsoll"));
        bed.process_guard().start(&name, program, &arguments(port.number()), environment);
        Self { bed: bed.clone(), name, port, began, has_ended: AtomicBool::new(false) }
    }

    /// Returns the page at a path, such as `livez`; `None` while it does not respond.
    pub async fn get(&self, path: &str) -> Option<Bytes> {
        http_get(&format!("http://127.0.0.1:{}/{path}", self.port)).await
    }

    /// Returns one of its metrics; `None` while it does not respond.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> Option<f64> {
        let page = self.get("metrics").await?;
        Some(metric_sum(&String::from_utf8_lossy(&page), name, labels))
    }

    /// Waits until one of its metrics satisfies a condition, and returns it.
    pub async fn wait_for_metric(
        &self,
        name: &str,
        labels: &[&str],
        is: impl Fn(f64) -> bool,
    ) -> f64 {
        wait::until_ok(&format!("{name} {labels:?} has the expected value"), || async {
            if let Some(ProcessState::Exited(code)) = self.bed.process_guard().state(&self.name) {
                panic!("{} has ended with {code}\n{}", self.name, self.log());
            }
            let value = self.metric(name, labels).await.ok_or_else(|| self.log())?;
            if is(value) { Ok(value) } else { Err(format!("it is {value}\n{}", self.log())) }
        })
        .await
    }

    /// Waits until a counter of it has increased by this much.
    pub async fn wait_for_increase(&self, name: &str, labels: &[&str], more: u32) {
        let before = self.wait_for_metric(name, labels, |_| true).await;
        self.wait_for_metric(name, labels, |now| now >= before + f64::from(more)).await;
    }

    /// Waits until it leads, or no longer does.
    pub async fn wait_until_leading(&self, wanted: bool) {
        self.wait_for_metric("plimsoll_leader", &[], |leads| (leads == 1.0) == wanted).await;
    }

    /// Waits until it is ready, whether it is the leader or not.
    pub async fn wait_until_ready(&self) {
        wait::until_ok("it is ready", || async {
            let answer = self.get("readyz").await.ok_or_else(|| self.log())?;
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

    /// Asserts that it has logged a line with all of these words.
    pub fn assert_line(&self, words: &[&str]) {
        assert_line(&self.log(), words);
    }

    /// Returns the log of this process.
    pub fn log(&self) -> String {
        read_log(&self.bed, &self.name).split_off(self.began)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: &str) {
        self.bed.process_guard().signal(&self.name, signal);
    }

    /// Stops it with `SIGSTOP`, and waits until it is stopped.
    pub async fn freeze(&self) {
        self.signal("STOP");
        wait::until("the process is stopped", || async {
            let state = self.bed.process_guard().state(&self.name)?;
            let ProcessState::Running(id) = state else { panic!("{} has ended", self.name) };
            let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
            // The program name may contain any character, even `)`.
            stat.rsplit(')').next()?.trim_start().starts_with('T').then_some(())
        })
        .await;
    }

    /// Sends a signal, waits for the end of the process, and returns its exit code.
    pub async fn end(&self, signal: &str) -> i32 {
        self.signal(signal);
        let code = wait::until("it has ended", || async {
            match self.bed.process_guard().state(&self.name)? {
                ProcessState::Exited(code) => Some(code),
                ProcessState::Running(_) => None,
            }
        })
        .await;
        self.has_ended.store(true, Ordering::Relaxed);
        code
    }
}

impl Drop for RoleProcess {
    fn drop(&mut self) {
        if !self.has_ended.load(Ordering::Relaxed) {
            self.signal("KILL");
        }
    }
}

fn read_log(bed: &Testbed, name: &str) -> String {
    String::from_utf8_lossy(&fs::read(bed.process_guard().log(name)).unwrap_or_default())
        .into_owned()
}
