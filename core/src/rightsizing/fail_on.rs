//! When a pipeline fails: `--fail-on`.

use std::{fmt, str::FromStr};

use super::{
    baseline::{Baseline, BaselineRow, total_cost},
    report::{Change, Level, Report, ResourceReport},
    row_key::RowKey,
};

/// What makes the command exit with 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum FailOn {
    /// Nothing.
    #[default]
    Never,
    /// A request or limit that should change.
    Change,
    /// A risk of this level or above.
    Risk(Level),
    /// Waste of this level or above.
    Waste(Level),
    /// A score of all workloads below this.
    Score(u32),
    /// Requests that cost more than this a month; with a baseline, this much more than then.
    Cost(f64),
}

/// A condition that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid value `{value}` of --fail-on: {expected}")]
pub struct InvalidFailOn {
    value: String,
    expected: &'static str,
}

impl FromStr for FailOn {
    type Err = InvalidFailOn;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |expected| InvalidFailOn { value: text.to_owned(), expected };
        let level = |level: &str, levels: &[Level], expected| {
            let found = levels.iter().find(|known| <&str>::from(**known) == level);
            found.copied().ok_or_else(|| invalid(expected))
        };
        let (name, value) =
            text.split_once(':').map_or((text, None), |(name, value)| (name, Some(value)));
        match (name, value) {
            ("never", None) => Ok(Self::Never),
            ("change", None) => Ok(Self::Change),
            ("risk", Some(value)) => {
                let levels = [Level::Medium, Level::High, Level::Critical];
                level(value, &levels, "use risk:medium, risk:high or risk:critical").map(Self::Risk)
            }
            ("waste", Some(value)) => {
                let levels = [Level::Low, Level::Medium, Level::High];
                level(value, &levels, "use waste:low, waste:medium or waste:high").map(Self::Waste)
            }
            ("score", Some(value)) => value
                .parse()
                .ok()
                .filter(|score| (1..=100).contains(score))
                .map(Self::Score)
                .ok_or_else(|| invalid("use score:N with a number from 1 to 100")),
            ("cost", Some(value)) => value
                .parse()
                .ok()
                .filter(|cost: &f64| cost.is_finite() && *cost >= 0.0)
                .map(Self::Cost)
                .ok_or_else(|| invalid("use cost:N with an amount of money a month")),
            _ => Err(invalid("use never, change, risk:LEVEL, waste:LEVEL, score:N or cost:N")),
        }
    }
}

impl fmt::Display for FailOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("never"),
            Self::Change => f.write_str("change"),
            Self::Risk(level) => write!(f, "risk:{level}"),
            Self::Waste(level) => write!(f, "waste:{level}"),
            Self::Score(score) => write!(f, "score:{score}"),
            Self::Cost(cost) => write!(f, "cost:{cost}"),
        }
    }
}

/// Something that makes the command fail.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    Row(RowKey),
    Score {
        /// Of all workloads.
        score: u32,
        /// What it should be at least.
        least: u32,
    },
    /// What all requests cost a month.
    Cost {
        cost: f64,
        /// What it should be at most.
        most: f64,
    },
    /// The cost or the score is unknown, so it is not known to be right either.
    Unknown(&'static str),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row(key) => key.fmt(f),
            Self::Score { score, least } => write!(f, "the score is {score}, below {least}"),
            Self::Cost { cost, most } => {
                write!(f, "requests cost {cost:.2} a month, more than {most:.2}")
            }
            Self::Unknown(what) => write!(f, "the {what} is unknown"),
        }
    }
}

impl FailOn {
    /// Whether it needs `--prices`.
    pub fn needs_prices(self) -> bool {
        matches!(self, Self::Cost(_))
    }

    /// What makes the command fail. With a baseline, only what is new or worse since then. Rows are in the
    /// order of the report.
    pub fn failures(self, report: &Report, baseline: Option<&Baseline>) -> Vec<Failure> {
        match self {
            Self::Never => Vec::new(),
            Self::Score(least) => match report.totals.score {
                None => vec![Failure::Unknown("score")],
                Some(score) => {
                    let before = baseline.and_then(|baseline| baseline.score);
                    let is_new = before.is_none_or(|before| score.value < before);
                    let fails = score.value < least && is_new;
                    fails
                        .then_some(Failure::Score { score: score.value, least })
                        .into_iter()
                        .collect()
                }
            },
            Self::Cost(most) => {
                let totals = &report.totals;
                let Some(cost) = total_cost(totals.cpu.cost, totals.memory.cost) else {
                    return vec![Failure::Unknown("cost")];
                };
                let before = match baseline.map(|baseline| (baseline.cost, &baseline.currency)) {
                    None => 0.0,
                    Some((None, _)) => return vec![Failure::Unknown("cost of the baseline")],
                    Some((_, currency)) if *currency != report.currency => {
                        return vec![Failure::Unknown("cost of the baseline in this currency")];
                    }
                    Some((Some(cost), _)) => cost,
                };
                let most = most + before;
                (cost > most).then_some(Failure::Cost { cost, most }).into_iter().collect()
            }
            Self::Change | Self::Risk(_) | Self::Waste(_) => {
                let failing = |key: RowKey, row: &ResourceReport| {
                    let before = baseline.and_then(|baseline| baseline.row(&key));
                    let fails = self.row_fails(row)
                        && before.is_none_or(|before| self.is_worse(row, before));
                    fails.then_some(Failure::Row(key))
                };
                rows(report).filter_map(|(key, row)| failing(key, row)).collect()
            }
        }
    }

    fn row_fails(self, row: &ResourceReport) -> bool {
        match self {
            Self::Change => changes(&row.change),
            Self::Risk(level) => row.risk >= level,
            Self::Waste(level) => row.waste >= level,
            Self::Never | Self::Score(_) | Self::Cost(_) => false,
        }
    }

    /// Whether a row that fails was better in the baseline.
    fn is_worse(self, row: &ResourceReport, before: BaselineRow) -> bool {
        match self {
            Self::Change => !before.changes,
            Self::Risk(_) => row.risk > before.risk,
            Self::Waste(_) => row.waste > before.waste,
            Self::Never | Self::Score(_) | Self::Cost(_) => false,
        }
    }
}

/// Whether a request or limit changes.
pub fn changes(change: &Change) -> bool {
    change.request.is_some() || change.limit.is_some() || change.remove_limit
}

fn rows(report: &Report) -> impl Iterator<Item = (RowKey, &ResourceReport)> {
    report.workloads.iter().flat_map(|workload| {
        workload.containers.iter().flat_map(move |container| {
            let row = move |row| (RowKey::of(workload, container, row), row);
            container.resources.iter().map(row)
        })
    })
}

#[cfg(test)]
mod tests;
