//! The order of the servers that were found: the one that knows most of the cluster comes first. Pure.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use plimsoll_storage::prometheus::server_flavor::ServerFlavor;

use super::candidates::Candidate;

/// Counts within one percent are equal: scrapes of the same containers end at different times.
const EQUAL_PERCENT: u64 = 99;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbedCandidate {
    pub candidate: Candidate,
    /// What it answered, or why it cannot be used.
    pub answer: Result<ServerAnswer, String>,
}

/// What a server answered. A count is an error if it is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAnswer {
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
pub fn rank(candidates: Vec<ProbedCandidate>) -> Vec<ProbedCandidate> {
    let sorted = |mut equal: Vec<ProbedCandidate>| {
        equal.sort_by_cached_key(|one| {
            let Candidate { kind, address, .. } = &one.candidate;
            (!kind.is_query_layer(), address.clone())
        });
        equal
    };
    groups(candidates, ProbedCandidate::usefulness, |one, other| one == other)
        .into_iter()
        .flat_map(|class| groups(class, |one| Reverse(one.now()), is_equal))
        .flat_map(|most| groups(most, |one| Reverse(one.week_ago()), is_equal))
        .flat_map(sorted)
        .collect()
}

/// Groups of candidates whose keys are equal to the first of the group, in ascending order.
fn groups<K: Ord>(
    mut candidates: Vec<ProbedCandidate>,
    key: fn(&ProbedCandidate) -> K,
    is_equal: fn(K, K) -> bool,
) -> Vec<Vec<ProbedCandidate>> {
    candidates.sort_by_key(key);
    let mut groups: Vec<Vec<ProbedCandidate>> = Vec::new();
    for candidate in candidates {
        match groups.last_mut() {
            Some(group) if is_equal(key(&candidate), key(&group[0])) => group.push(candidate),
            _ => groups.push(vec![candidate]),
        }
    }
    groups
}

fn is_equal(count: Reverse<u64>, most: Reverse<u64>) -> bool {
    u128::from(count.0) * 100 >= u128::from(most.0) * u128::from(EQUAL_PERCENT)
}
