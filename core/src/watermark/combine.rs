//! What all sources of an object ask for together: each one's proposal or why it has none, and the one that holds.

use crate::types::Time;

use super::{
    band::{Band, Position},
    converge::Convergence,
    propose::Proposal,
    rules::Rules,
};
use crate::{
    scaling::{Answer, Milli, Pod, Readiness, Scale, SourceKind, Unknown, Unready},
    types::compat::{Fix, Fixes},
};

/// One source, with what came of asking.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// What kind it is.
    pub kind: SourceKind,
    /// Its name, as labels have it.
    pub label: String,
    /// Its name with its selector, as texts have it.
    pub name: String,
    /// Which series or pods count, as the API is asked for them; empty for all of them.
    pub selector: String,
    /// Where a recommender is, without what may be secret in it.
    pub address: Option<String>,
    /// Its marks, where it has both.
    pub band: Option<Band>,
    /// What came of asking.
    pub asked: Result<Answer, Unknown>,
}

/// What came of one source.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What kind of source it is.
    pub kind: SourceKind,
    /// Its name, as labels have it.
    pub label: String,
    /// Its name with its selector.
    pub name: String,
    /// Its marks.
    pub band: Option<Band>,
    /// What it asks for, or why nothing is known.
    pub outcome: Result<Asked, Unknown>,
    /// Whether it is the one that holds.
    pub is_chosen: bool,
}

/// What a source asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// What follows from its value.
    pub proposal: Proposal,
    /// Pods that counted as ready.
    pub ready: u32,
    /// The value is zero, which says nothing here.
    pub is_silent: bool,
}

/// What all of them ask for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Combined {
    /// So many replicas, before any limit.
    pub replicas: i32,
    /// Whether some metric is above its band.
    pub is_above: bool,
    /// Whether some metric is below its band.
    pub is_below: bool,
    /// Pods that counted as ready for the source that holds.
    pub ready: u32,
    /// The name of that source.
    pub name: String,
    /// Why a recommender recommends it.
    pub reason: String,
    /// What came of going towards a mark, for the source that was looked at last.
    pub convergence: Option<Convergence>,
}

impl Combined {
    /// Whether no metric is outside of its band.
    pub const fn is_stable(&self) -> bool {
        !self.is_above && !self.is_below
    }
}

/// Why nothing can be computed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Uncomputable {
    /// There is nothing to look at.
    #[error("neither metrics nor a recommender are set, so there is nothing to follow")]
    NoSource,
    /// Something else does not let it be followed.
    #[error("{0}")]
    Blocked(String),
    /// A source says nothing.
    #[error("{whose}: {cause}")]
    Source {
        /// Which one.
        place: usize,
        /// Upstream's reason for it.
        reason: &'static str,
        /// What is wrong with it.
        why: Unknown,
        /// Whose replicas those would be.
        whose: String,
        /// Why they are not known.
        cause: String,
    },
}

impl Uncomputable {
    /// The same as it is said where it is clear whose replicas it is about.
    pub fn cause(&self) -> String {
        match self {
            Self::Source { cause, .. } => cause.clone(),
            Self::NoSource | Self::Blocked(_) => self.to_string(),
        }
    }
}

/// What proposals hang on.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// What the object asks for.
    pub rules: &'a Rules,
    /// How pods are counted.
    pub readiness: Readiness<'a>,
    /// The target's selector, for texts.
    pub selector: &'a str,
    /// The pods that it finds.
    pub pods: &'a [Pod],
    /// What the target has.
    pub scale: Scale,
    /// Values of longer ago say nothing.
    pub oldest: Option<Time>,
    /// Which of upstream's defects are mended.
    pub fixes: Fixes,
}

impl Setting<'_> {
    /// What all sources ask for, in their order. One that says nothing leaves the others without a say.
    pub fn combine(&self, sources: &[Source]) -> (Vec<Row>, Result<Combined, Uncomputable>) {
        let mut rows: Vec<Row> = Vec::with_capacity(sources.len());
        let mut combined = Combined::default();
        let mut chosen: Option<usize> = None;
        let mut failed = None;
        for (place, source) in sources.iter().enumerate() {
            let outcome = self.ask(source);
            match &outcome {
                Ok(asked) => {
                    let proposal = &asked.proposal;
                    combined.is_above |= proposal.position == Position::Above;
                    combined.is_below |= proposal.position == Position::Below;
                    if !asked.is_silent {
                        combined.convergence = Some(proposal.convergence);
                    }
                    // A proposal of nothing is no reason to stay there.
                    if combined.replicas == 0 || proposal.replicas > combined.replicas {
                        combined.replicas = proposal.replicas;
                        combined.ready = asked.ready;
                        combined.name.clone_from(&source.name);
                        combined.reason = reason(source);
                        chosen = Some(place);
                    }
                }
                Err(why) => {
                    failed.get_or_insert_with(|| self.uncomputable(place, source, why));
                }
            }
            rows.push(Row {
                kind: source.kind,
                label: source.label.clone(),
                name: source.name.clone(),
                band: source.band,
                outcome,
                is_chosen: false,
            });
        }
        if sources.is_empty() && self.fixes.has(Fix::NoSourceHolds) {
            failed = Some(Uncomputable::NoSource);
        }
        if let Some(failed) = failed {
            let adds = combined.is_above && combined.replicas > self.scale.wanted;
            // Whatever the others would have said, they would not have asked for fewer than the most.
            if !(self.rules.options.partial && adds) {
                return (rows, Err(failed));
            }
        }
        if let Some(row) = chosen.and_then(|place| rows.get_mut(place)) {
            row.is_chosen = true;
        }
        (rows, Ok(combined))
    }

    fn ask(&self, source: &Source) -> Result<Asked, Unknown> {
        let answer = source.asked.clone()?;
        if let Some(at) = answer.at().filter(|at| self.oldest.is_some_and(|oldest| *at < oldest)) {
            return Err(Unknown::Stale { at });
        }
        if let Answer::Usage { usage, is_cpu, .. } = &answer {
            let (sum, ready) = self.readiness.usage(self.pods, *is_cpu, usage)?;
            let band = source.band.ok_or(Unknown::NotANumber)?;
            return Ok(Asked {
                proposal: self
                    .rules
                    .question(self.scale.wanted, ready, self.fixes)
                    .propose(sum, &band),
                ready,
                is_silent: false,
            });
        }
        if let Some(asked) = self.around_zero(&answer) {
            return Ok(asked);
        }
        let ready = self.readiness.count(self.pods, self.scale)?;
        let question = self.rules.question(self.scale.wanted, ready, self.fixes);
        let is_zero = match &answer {
            Answer::Sum { sum, .. } => *sum == 0,
            Answer::Advice(advice) => advice.replicas == 0,
            Answer::Usage { .. } => false,
        };
        if is_zero && !self.rules.tolerates_zero {
            return Ok(Asked { proposal: self.silent(ready), ready, is_silent: true });
        }
        let proposal = match &answer {
            Answer::Sum { sum, .. } => {
                question.propose(*sum, &source.band.ok_or(Unknown::NotANumber)?)
            }
            Answer::Advice(advice) => question.follow(advice),
            Answer::Usage { .. } => return Err(Unknown::NotANumber),
        };
        Ok(Asked { proposal, ready, is_silent: false })
    }

    /// Where the last replica may go, a zero asks for none, and whatever is more for one where there is none.
    fn around_zero(&self, answer: &Answer) -> Option<Asked> {
        let value = match answer {
            Answer::Sum { sum, .. } => *sum,
            Answer::Advice(advice) => Milli::from(advice.replicas) * 1000,
            Answer::Usage { .. } => return None,
        };
        let (replicas, position) = match (self.scale.wanted, value) {
            _ if !self.rules.may_be_zero() => return None,
            (_, ..=0) => (0, Position::Below),
            (0, _) => (1, Position::Above),
            _ => return None,
        };
        let convergence = Convergence::Outside(position);
        let value = value.max(0);
        let proposal =
            Proposal { replicas, position, value: value as f64, utilisation: value, convergence };
        Some(Asked { proposal, ready: 0, is_silent: false })
    }

    /// A zero says nothing. Upstream takes it for as many replicas as are ready.
    fn silent(&self, ready: u32) -> Proposal {
        let replicas = if self.fixes.has(Fix::ZeroKeepsReplicas) {
            self.scale.wanted
        } else {
            i32::try_from(ready).unwrap_or(i32::MAX)
        };
        Proposal {
            replicas,
            position: Position::Inside,
            value: 0.0,
            utilisation: 0 as Milli,
            convergence: Convergence::Off,
        }
    }

    fn uncomputable(&self, place: usize, source: &Source, why: &Unknown) -> Uncomputable {
        let Source { kind, label, selector, address, .. } = source;
        let namespace = self.readiness.object.namespace;
        let whose = match kind {
            SourceKind::External | SourceKind::Prometheus => {
                format!("failed to compute replicas based on external metric {label}")
            }
            SourceKind::Resource | SourceKind::ContainerResource => {
                format!("failed to get resource metric {label}")
            }
            SourceKind::Recommender => {
                let address = address.as_ref().unwrap_or(label);
                format!("failed to get the recommendation from {address}")
            }
        };
        let cause = match (kind, why) {
            (_, Unknown::Unready(Unready::NoneReady { .. })) => format!(
                "unable to get the number of ready pods across all namespaces for {}: {why}",
                self.selector
            ),
            (_, Unknown::Unready(_)) | (SourceKind::Recommender, _) => why.to_string(),
            (SourceKind::External | SourceKind::Prometheus, _) => {
                format!("unable to get external metric {namespace}/{label}/{selector}: {why}")
            }
            (SourceKind::Resource | SourceKind::ContainerResource, _) => {
                format!("unable to get resource metric {namespace}/{label}/{selector}: {why}")
            }
        };
        let reason = failure(*kind);
        Uncomputable::Source { place, reason, why: why.clone(), whose, cause }
    }
}

/// Upstream's reason for a failure of it.
pub const fn failure(kind: SourceKind) -> &'static str {
    match kind {
        SourceKind::External | SourceKind::Prometheus => "FailedGetExternalMetric",
        SourceKind::Resource | SourceKind::ContainerResource | SourceKind::Recommender => {
            "FailedGetResourceMetric"
        }
    }
}

fn reason(source: &Source) -> String {
    match &source.asked {
        Ok(Answer::Advice(advice)) => advice.reason.clone(),
        _ => String::new(),
    }
}
