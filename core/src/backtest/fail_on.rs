//! When a pipeline fails: `--fail-on='cost: oom-days > current'`.

use std::{fmt, str::FromStr};

use strum::{Display, EnumString, IntoStaticStr, VariantNames};

use super::{
    policy::parse::nearest,
    report::{BacktestReport, PolicyReport},
};

/// A figure of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Metric {
    /// Container-days with an OOM kill.
    OomDays,
    OomKills,
    /// Container-days with at least four OOM kills.
    SeriousDays,
    /// Container-days with more than 5 % of minutes above the CPU request.
    BadCpuDays,
    /// The share of time above the CPU request, in percent.
    CpuShortTime,
    /// The share of CPU usage above the request, in percent.
    CpuShortVolume,
    /// The share of requested CPU that is slack, in percent.
    CpuSlack,
    /// The share of requested memory that is slack, in percent.
    MemorySlack,
    /// The mean of requested cores.
    CpuRequested,
    /// The mean of requested GiB.
    MemoryRequested,
    /// Changed pods per workload-day.
    Changes,
    /// What the requests cost a month.
    Cost,
}

/// How two figures are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `>`.
    Above,
    /// `>=`.
    AtLeast,
    /// `<`.
    Below,
    /// `<=`.
    AtMost,
}

/// What a figure is compared with.
#[derive(Clone, Debug, PartialEq)]
pub enum Bound {
    /// The same figure of another policy.
    Policy(Box<str>),
    /// A number; shares in percent.
    Number(f64),
}

/// What makes the command exit with 1: a policy whose figure compares so with that of another, or with a number.
#[derive(Clone, Debug, PartialEq)]
pub struct FailOn {
    pub policy: Box<str>,
    /// Its figure.
    pub metric: Metric,
    pub comparison: Comparison,
    /// What it is compared with.
    pub bound: Bound,
}

/// A condition that does not parse, or that names a policy that is not in the backtest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid value `{value}` of --fail-on: {problem}")]
pub struct InvalidFailOn {
    value: String,
    problem: String,
}

/// The result of a condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It does not hold.
    Passed,
    /// It holds; the text says with which figures.
    Failed(String),
    /// A figure is unknown, so it is not known whether it holds; the text says which.
    Unknown(String),
}

impl Comparison {
    const ALL: [(&'static str, Self); 4] =
        [(">=", Self::AtLeast), ("<=", Self::AtMost), (">", Self::Above), ("<", Self::Below)];

    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Above => left > right,
            Self::AtLeast => left >= right,
            Self::Below => left < right,
            Self::AtMost => left <= right,
        }
    }

    fn text(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, comparison)| *comparison == self);
        found.map_or("", |(text, _)| *text)
    }
}

impl Metric {
    /// The figure of a policy; `None` if it is unknown.
    pub fn of(self, policy: &PolicyReport) -> Option<f64> {
        let percent = |share: Option<f64>| share.map(|share| share * 100.0);
        match self {
            Self::OomDays => Some(policy.oom_days as f64),
            Self::OomKills => Some(policy.oom_kills as f64),
            Self::SeriousDays => Some(policy.serious_days as f64),
            Self::BadCpuDays => Some(policy.bad_cpu_days as f64),
            Self::CpuShortTime => percent(policy.cpu_short_time),
            Self::CpuShortVolume => percent(policy.cpu_short_volume),
            Self::CpuSlack => percent(policy.cpu_slack),
            Self::MemorySlack => percent(policy.memory_slack),
            Self::CpuRequested => Some(policy.cpu_requested),
            Self::MemoryRequested => policy.memory_requested,
            Self::Changes => Some(policy.changes_per_day),
            Self::Cost => policy.monthly_cost,
        }
    }
}

impl FromStr for FailOn {
    type Err = InvalidFailOn;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |problem: String| InvalidFailOn { value: text.to_owned(), problem };
        let shape = || invalid("write `POLICY: METRIC > POLICY`, or a number on the right".into());
        let (policy, condition) = text.split_once(':').ok_or_else(shape)?;
        let found = Comparison::ALL.iter().find_map(|(sign, comparison)| {
            condition.split_once(sign).map(|(left, right)| (left.trim(), *comparison, right.trim()))
        });
        let (metric, comparison, bound) = found.ok_or_else(shape)?;
        let (policy, bound) = (policy.trim(), bound.trim_end_matches('%').trim());
        if policy.is_empty() || bound.is_empty() {
            return Err(shape());
        }
        let metric = metric.parse().map_err(|_| {
            let names = <Metric as VariantNames>::VARIANTS;
            let nearest = nearest(metric, names.iter().copied());
            invalid(format!("there is no metric `{metric}`; did you mean `{nearest}`?"))
        })?;
        let bound = match bound.parse::<f64>() {
            Ok(number) if number.is_finite() => Bound::Number(number),
            _ => Bound::Policy(bound.into()),
        };
        Ok(Self { policy: policy.into(), metric, comparison, bound })
    }
}

impl fmt::Display for FailOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {} ", self.policy, self.metric, self.comparison.text())?;
        match &self.bound {
            Bound::Policy(policy) => f.write_str(policy),
            Bound::Number(number) => write!(f, "{number}"),
        }
    }
}

impl FailOn {
    /// Returns an error if it names a policy that is not among these.
    pub fn ensure_policies<'a>(
        &self,
        names: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<(), InvalidFailOn> {
        let other = match &self.bound {
            Bound::Policy(policy) => Some(policy),
            Bound::Number(_) => None,
        };
        for policy in [Some(&self.policy), other].into_iter().flatten() {
            if !names.clone().any(|name| *name == **policy) {
                let known: Vec<&str> = names.collect();
                let problem = format!(
                    "`{policy}` is not among the policies of the backtest: {}",
                    known.join(", ")
                );
                return Err(InvalidFailOn { value: self.to_string(), problem });
            }
        }
        Ok(())
    }

    /// Whether it holds for a report.
    pub fn check(&self, report: &BacktestReport) -> Outcome {
        let figure = |name: &str| {
            let policy = report.policies.iter().find(|policy| policy.name == name);
            policy.and_then(|policy| self.metric.of(policy))
        };
        let unknown =
            |name: &str| Outcome::Unknown(format!("the {} of {name} is not known", self.metric));
        let Some(left) = figure(&self.policy) else { return unknown(&self.policy) };
        let right = match &self.bound {
            Bound::Number(number) => *number,
            Bound::Policy(policy) => match figure(policy) {
                Some(figure) => figure,
                None => return unknown(policy),
            },
        };
        if !self.comparison.holds(left, right) {
            return Outcome::Passed;
        }
        let of = match &self.bound {
            Bound::Policy(policy) => format!(" of {policy}"),
            Bound::Number(_) => String::new(),
        };
        Outcome::Failed(format!(
            "{} of {} is {left:.4} and {} {right:.4}{of}",
            self.metric,
            self.policy,
            self.comparison.text()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_read_and_printed() {
        for (text, printed) in [
            ("cost: oom-days > current", "cost: oom-days > current"),
            ("slow:cpu-slack>=40%", "slow: cpu-slack >= 40"),
            ("vpa : changes <= 1.5", "vpa: changes <= 1.5"),
            ("a:cost<b", "a: cost < b"),
        ] {
            let parsed: FailOn = text.parse().expect(text);
            assert_eq!(parsed.to_string(), printed);
            assert_eq!(printed.parse::<FailOn>().as_ref(), Ok(&parsed));
        }
        for (text, problem) in [
            ("oom-days > current", "write `POLICY: METRIC > POLICY`"),
            ("cost: oom-days", "write `POLICY: METRIC > POLICY`"),
            (": oom-days > 1", "write `POLICY: METRIC > POLICY`"),
            ("cost: oom-day > 1", "there is no metric `oom-day`; did you mean `oom-days`?"),
        ] {
            let error = text.parse::<FailOn>().expect_err(text).to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn a_policy_that_is_not_replayed_is_an_error() {
        let condition: FailOn = "cost: oom-days > current".parse().expect("parses");
        let known = |names: &'static [&str]| condition.ensure_policies(names.iter().copied());
        assert_eq!(known(&["current", "cost"]), Ok(()));
        assert!(known(&["cost"]).is_err() && known(&["current"]).is_err());
    }
}
