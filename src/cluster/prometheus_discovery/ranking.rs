//! The order of the servers that were found: the one that knows most of the cluster comes first. Pure.

#[cfg(test)]
mod tests;

use plimsoll_storage::prometheus::server_flavor::ServerFlavor;

use super::candidates::Candidate;

/// Counts within one percent are equal: scrapes of the same containers end at different times.
const EQUAL_PERCENT: u64 = 99;

/// A candidate, and what it answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbedCandidate {
    /// The Service.
    pub candidate: Candidate,
    /// What it answered, or why it cannot be used.
    pub answer: Result<ServerAnswer, String>,
}

/// What a server answered. A count is an error if it is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAnswer {
    /// The product.
    pub flavor: ServerFlavor,
    /// The release, if the product reports it.
    pub version: Option<String>,
    /// The number of containers with CPU usage now.
    pub containers_now: Result<u64, String>,
    /// The same seven days ago.
    pub containers_week_ago: Result<u64, String>,
}

/// How useful a server is, from the most to the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Usefulness {
    /// It has the usage of containers now.
    Current,
    /// It is a server, but does not say in time how many containers it has.
    Unknown,
    /// It had the usage of containers.
    Outdated,
    /// It has no usage of containers.
    Empty,
    /// It gave no usable answer.
    Unusable,
}

impl ProbedCandidate {
    fn usefulness(&self) -> Usefulness {
        let Ok(answer) = &self.answer else { return Usefulness::Unusable };
        match (&answer.containers_now, &answer.containers_week_ago) {
            (Ok(1..), _) => Usefulness::Current,
            (Err(_), _) => Usefulness::Unknown,
            (Ok(0), Ok(1..)) => Usefulness::Outdated,
            (Ok(0), _) => Usefulness::Empty,
        }
    }

    /// Containers now; 0 if unknown, for comparisons within the same usefulness.
    fn now(&self) -> u64 {
        self.answer.as_ref().ok().and_then(|answer| answer.containers_now.clone().ok()).unwrap_or(0)
    }

    fn week_ago(&self) -> u64 {
        let answer = self.answer.as_ref().ok();
        answer.and_then(|answer| answer.containers_week_ago.clone().ok()).unwrap_or(0)
    }
}

/// Sorts candidates, the best first: the most containers now, then the most seven days ago, then query layers before the
/// servers behind them, then by namespace and name.
pub fn rank(mut candidates: Vec<ProbedCandidate>) -> Vec<ProbedCandidate> {
    candidates.sort_by_key(ProbedCandidate::usefulness);
    let mut ranked = Vec::with_capacity(candidates.len());
    while let Some(first) = candidates.first() {
        let class = first.usefulness();
        let end = candidates.partition_point(|other| other.usefulness() <= class);
        let rest = candidates.split_off(end);
        ranked.extend(rank_class(std::mem::replace(&mut candidates, rest)));
    }
    ranked
}

/// Sorts candidates of the same usefulness.
fn rank_class(candidates: Vec<ProbedCandidate>) -> Vec<ProbedCandidate> {
    let mut ranked = Vec::with_capacity(candidates.len());
    for most in groups(candidates, ProbedCandidate::now) {
        for mut equal in groups(most, ProbedCandidate::week_ago) {
            let key = |one: &ProbedCandidate| {
                let Candidate { kind, address, .. } = &one.candidate;
                (!kind.is_query_layer(), address.clone())
            };
            equal.sort_by_cached_key(key);
            ranked.extend(equal);
        }
    }
    ranked
}

/// Groups of candidates whose counts are equal to the largest of the group, in descending order.
fn groups(
    mut candidates: Vec<ProbedCandidate>,
    count: fn(&ProbedCandidate) -> u64,
) -> Vec<Vec<ProbedCandidate>> {
    candidates.sort_by_key(|one| std::cmp::Reverse(count(one)));
    let mut groups: Vec<Vec<ProbedCandidate>> = Vec::new();
    for candidate in candidates {
        match groups.last_mut() {
            Some(group)
                if group.first().is_some_and(|most| is_equal(count(&candidate), count(most))) =>
            {
                group.push(candidate);
            }
            _ => groups.push(vec![candidate]),
        }
    }
    groups
}

fn is_equal(count: u64, most: u64) -> bool {
    u128::from(count) * 100 >= u128::from(most) * u128::from(EQUAL_PERCENT)
}
