//! Both admission controllers as processes on a testbed, each with its own certificates.

use super::{
    load::{self, WebhookAddress},
    process::{self, Process},
    review_request::ReviewRequest,
    support::{
        Testbed, plimsoll_process::PlimsollProcesses, process_guard::ProcessState,
        recommender_pair::Implementation, skipped::report_skipped,
        upstream_process::UpstreamProcesses, wait,
    },
};

/// Both implementations, ready to be started.
#[derive(Debug)]
pub struct WebhookPair {
    bed: Testbed,
    upstream: UpstreamProcesses,
    ours: PlimsollProcesses,
}

/// A running webhook.
#[derive(Debug)]
pub struct WebhookProcess {
    pub implementation: Implementation,
    /// Its name in the process guard.
    pub name: &'static str,
    pub address: WebhookAddress,
    bed: Testbed,
}

// === impl WebhookPair ===

impl WebhookPair {
    /// Creates the CRDs on a testbed. Returns `None` after reporting what is missing.
    pub async fn on(bed: &Testbed) -> Option<Self> {
        if let Some(reason) = PlimsollProcesses::missing_role("admission-controller") {
            report_skipped(reason);
            return None;
        }
        let upstream = UpstreamProcesses::new(bed).await?;
        Some(Self { bed: bed.clone(), upstream, ours: PlimsollProcesses::new(bed) })
    }

    /// Starts both with `flags`, and Plimsoll also with `ours`.
    pub fn start(&self, flags: &[String], ours: &[String]) -> [WebhookProcess; 2] {
        let both: Vec<&str> = flags.iter().map(String::as_str).collect();
        let all: Vec<&str> = flags.iter().chain(ours).map(String::as_str).collect();
        let start = |implementation, name, (port, certificate): (u16, String)| {
            let address = WebhookAddress::new(port, &certificate);
            WebhookProcess { implementation, name, address, bed: self.bed.clone() }
        };
        [
            start(Implementation::Upstream, "upstream", self.upstream.webhook("upstream", &both)),
            start(Implementation::Ours, "ours", self.ours.webhook("ours", &all)),
        ]
    }
}

// === impl WebhookProcess ===

impl WebhookProcess {
    /// Waits until every review is answered with its patch.
    pub async fn answers_all(&self, questions: &[ReviewRequest]) {
        let description = format!("{} patches every pod", self.name);
        wait::until_ok(&description, || async {
            self.process();
            let answers = load::each(&self.address, questions).await?;
            let bad = answers.iter().zip(questions).find(|(answer, it)| !it.is_patched_by(answer));
            bad.map_or(Ok(()), |(answer, _)| Err(String::from_utf8_lossy(answer).into_owned()))
        })
        .await;
    }

    /// The kernel's statistics of the process. Panics with the log tail if it has ended.
    pub fn process(&self) -> Process {
        let keeper = self.bed.process_guard();
        match keeper.state(self.name) {
            Some(ProcessState::Running(id)) => process::read_stats(id),
            other => panic!("{} is {other:?}\n{}", self.name, keeper.log_tail(self.name, 15)),
        }
    }
}
