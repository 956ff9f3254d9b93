//! Both admission controllers as processes on a bed, each with certificates of its own.

use super::{
    load::{self, Address},
    process::{self, Process},
    question::Question,
    support::{
        Bed, keeper::State, not_run::not_run, ours::Ours, peers::Side, upstream::Upstream, wait,
    },
};

/// Both, ready to be started.
#[derive(Debug)]
pub struct Rivals {
    bed: Bed,
    upstream: Upstream,
    ours: Ours,
}

/// One that runs.
#[derive(Debug)]
pub struct Rival {
    pub whose: Side,
    /// With the bed's keeper.
    pub name: &'static str,
    pub address: Address,
    bed: Bed,
}

// === impl Rivals ===

impl Rivals {
    /// Creates the definitions on a bed. `None` after noting what is missing.
    pub async fn on(bed: &Bed) -> Option<Self> {
        if let Some(reason) = Ours::lacks("admission-controller") {
            not_run(reason);
            return None;
        }
        let upstream = Upstream::on(bed).await?;
        Some(Self { bed: bed.clone(), upstream, ours: Ours::on(bed) })
    }

    /// Starts both, with these flags, and ours with those as well.
    pub fn start(&self, flags: &[String], ours: &[String]) -> [Rival; 2] {
        let both: Vec<&str> = flags.iter().map(String::as_str).collect();
        let all: Vec<&str> = flags.iter().chain(ours).map(String::as_str).collect();
        let rival = |whose, name, (port, certificate): (u16, String)| {
            let address = Address::new(port, &certificate);
            Rival { whose, name, address, bed: self.bed.clone() }
        };
        [
            rival(Side::Upstream, "upstream", self.upstream.webhook("upstream", &both)),
            rival(Side::Ours, "ours", self.ours.webhook("ours", &all)),
        ]
    }
}

// === impl Rival ===

impl Rival {
    /// Waits until every one of these is answered with its patch.
    pub async fn answers_all(&self, questions: &[Question]) {
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
        let keeper = self.bed.keeper();
        match keeper.state(self.name) {
            Some(State::Running(id)) => process::look(id),
            other => panic!("{} is {other:?}\n{}", self.name, keeper.log_tail(self.name, 15)),
        }
    }
}
