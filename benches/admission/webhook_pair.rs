//! Both admission controllers as processes on a bed, each with certificates of its own.

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

/// Both, ready to be started.
#[derive(Debug)]
pub struct WebhookPair {
    bed: Testbed,
    upstream: UpstreamProcesses,
    ours: PlimsollProcesses,
}

/// One that runs.
#[derive(Debug)]
pub struct WebhookProcess {
    pub implementation: Implementation,
    /// With the bed's keeper.
    pub name: &'static str,
    pub address: WebhookAddress,
    bed: Testbed,
}

// === impl Rivals ===

impl WebhookPair {
    /// Creates the definitions on a bed. `None` after noting what is missing.
    pub async fn on(bed: &Testbed) -> Option<Self> {
        if let Some(reason) = PlimsollProcesses::missing_role("admission-controller") {
            report_skipped(reason);
            return None;
        }
        let upstream = UpstreamProcesses::new(bed).await?;
        Some(Self { bed: bed.clone(), upstream, ours: PlimsollProcesses::new(bed) })
    }

    /// Starts both, with these flags, and ours with those as well.
    pub fn start(&self, flags: &[String], ours: &[String]) -> [WebhookProcess; 2] {
        let both: Vec<&str> = flags.iter().map(String::as_str).collect();
        let all: Vec<&str> = flags.iter().chain(ours).map(String::as_str).collect();
        let rival = |whose, name, (port, certificate): (u16, String)| {
            let address = WebhookAddress::new(port, &certificate);
            WebhookProcess { implementation: whose, name, address, bed: self.bed.clone() }
        };
        [
            rival(Implementation::Upstream, "upstream", self.upstream.webhook("upstream", &both)),
            rival(Implementation::Ours, "ours", self.ours.webhook("ours", &all)),
        ]
    }
}

// === impl Rival ===

impl WebhookProcess {
    /// Waits until every one of these is answered with its patch.
    pub async fn answers_all(&self, questions: &[ReviewRequest]) {
        let what = format!("{} patches every pod", self.name);
        wait::until_ok(&what, || async {
            self.process();
            let answers = load::each(&self.address, questions).await?;
            let bad = answers.iter().zip(questions).find(|(answer, it)| !it.is_patched_by(answer));
            bad.map_or(Ok(()), |(answer, _)| Err(String::from_utf8_lossy(answer).into_owned()))
        })
        .await;
    }

    /// What the kernel knows of it. Panics with the end of its log when it has ended.
    pub fn process(&self) -> Process {
        let keeper = self.bed.process_guard();
        match keeper.state(self.name) {
            Some(ProcessState::Running(id)) => process::look(id),
            other => panic!("{} is {other:?}\n{}", self.name, keeper.log_tail(self.name, 15)),
        }
    }
}
