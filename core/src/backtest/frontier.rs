//! Which policies no other beats. There is no single mark: one beats another if it costs no more, has no more OOM-days and no
//! more bad CPU days, and less of one of them.

/// What a policy is judged by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// What its requests cost.
    pub cost: f64,
    pub oom_days: CountRange,
    pub bad_cpu_days: CountRange,
}

/// A count that is known but for days that depend on demand that was not recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountRange {
    /// Without them.
    pub lower: u64,
    /// With all of them.
    pub upper: u64,
}

impl CountRange {
    /// A count that is known.
    pub const fn exact(count: u64) -> Self {
        Self { lower: count, upper: count }
    }
}

impl Candidate {
    /// Whether it beats the other one, whatever demand was not recorded.
    fn surely_beats(&self, other: &Self) -> bool {
        let is_less = self.cost < other.cost
            || self.oom_days.upper < other.oom_days.lower
            || self.bad_cpu_days.upper < other.bad_cpu_days.lower;
        is_less
            && self.cost <= other.cost
            && self.oom_days.upper <= other.oom_days.lower
            && self.bad_cpu_days.upper <= other.bad_cpu_days.lower
    }

    /// Whether it may beat the other one.
    fn may_beat(&self, other: &Self) -> bool {
        let is_less = self.cost < other.cost
            || self.oom_days.lower < other.oom_days.upper
            || self.bad_cpu_days.lower < other.bad_cpu_days.upper;
        is_less
            && self.cost <= other.cost
            && self.oom_days.lower <= other.oom_days.upper
            && self.bad_cpu_days.lower <= other.bad_cpu_days.upper
    }
}

/// For each candidate whether no other beats it; `None` if that depends on demand that was not recorded.
pub fn judge(candidates: &[Candidate]) -> Vec<Option<bool>> {
    let others = |own: usize| {
        candidates
            .iter()
            .enumerate()
            .filter(move |(other, _)| *other != own)
            .map(|(_, other)| other)
    };
    let verdict = |(own, candidate): (usize, &Candidate)| {
        if others(own).any(|other| other.surely_beats(candidate)) {
            Some(false)
        } else if others(own).any(|other| other.may_beat(candidate)) {
            None
        } else {
            Some(true)
        }
    };
    candidates.iter().enumerate().map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(cost: f64, oom_days: u64, bad_cpu_days: u64) -> Candidate {
        Candidate {
            cost,
            oom_days: CountRange::exact(oom_days),
            bad_cpu_days: CountRange::exact(bad_cpu_days),
        }
    }

    #[test]
    fn a_policy_is_beaten_by_one_that_is_nowhere_worse_and_somewhere_better() {
        let verdicts = judge(&[
            candidate(10.0, 3, 5),
            candidate(12.0, 3, 5), // dearer than the first and nothing else
            candidate(12.0, 2, 9), // fewer OOM-days than the first
            candidate(9.0, 9, 9),  // cheaper
            candidate(9.0, 9, 9),  // the same: neither beats the other
        ]);
        assert_eq!(verdicts, [Some(true), Some(false), Some(true), Some(true), Some(true)]);
    }

    #[test]
    fn what_depends_on_unrecorded_demand_is_unknown() {
        let unsure =
            Candidate { bad_cpu_days: CountRange { lower: 0, upper: 4 }, ..candidate(5.0, 0, 0) };
        let safe = candidate(8.0, 0, 1);
        assert_eq!(judge(&[unsure, safe]), [Some(true), None]);
        let safe = candidate(8.0, 0, 4);
        assert_eq!(judge(&[unsure, safe]), [Some(true), Some(false)], "at most four is not more");
    }
}
