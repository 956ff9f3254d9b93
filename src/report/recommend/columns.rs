//! The columns of forms that have one row for each container and resource.

use std::{borrow::Cow, str::FromStr};

use plimsoll_core::{
    rightsizing::{
        report::{Report, ResourceReport},
        survey::{ContainerRole, Resource},
    },
    types::Time,
};
use strum::{EnumIter, IntoEnumIterator as _, IntoStaticStr};

use super::{
    amounts, names,
    selection::{Entry, SortKey, entries, sort},
    words,
};
use crate::report::explain::suggestions::suggestions;

/// A column. Its name on the command line and in CSV is in snake case; hyphens and capital letters are accepted too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Column {
    /// The cluster, if the report covers several.
    Cluster,
    Namespace,
    /// The kind of the workload.
    Kind,
    /// The name of the workload.
    Name,
    /// Namespace, kind and name, as `--why` accepts them.
    Workload,
    /// The number of pods.
    Replicas,
    /// The VerticalPodAutoscaler that targets the workload.
    Vpa,
    Container,
    /// When the container runs: main, init, sidecar.
    Role,
    /// The resource: cpu, memory.
    Resource,
    /// The unit of the amounts of the row in CSV: cores, bytes.
    Unit,
    /// The request of one pod.
    Request,
    /// The limit of one pod.
    Limit,
    /// The recommended request.
    Target,
    /// Pods with a lower request should get more.
    Lower,
    /// Pods with a higher request need less.
    Upper,
    /// The new request, if it changes.
    NewRequest,
    /// The new limit, if it changes.
    NewLimit,
    /// Whether the limit should be removed.
    RemoveLimit,
    /// By how many percent the request changes.
    ChangePercent,
    /// Why the resource stays as it is although its target differs.
    Held,
    /// The risk: ok, low, medium, high, critical.
    Risk,
    /// What the risk is, as codes.
    RiskReasons,
    /// The waste: ok, low, medium, high.
    Waste,
    /// What the requests of all pods cost a month.
    Cost,
    /// What they would cost with the target.
    NewCost,
    /// The currency of costs.
    Currency,
    /// Why there is no recommendation.
    Unsaid,
    /// The number of samples that the recommendation is based on.
    Samples,
    /// OOM kills of the container within the window.
    OomKills,
    LastOomKill,
    /// The share of CFS periods in which the container was throttled, from 0 to 1.
    ThrottledShare,
    /// The peak of memory of one pod within the window.
    MemoryPeak,
    /// The shape of the workload, if it is not a plain one.
    Shape,
}

const WIDE: [Column; 13] = [
    Column::Workload,
    Column::Replicas,
    Column::Container,
    Column::Resource,
    Column::Request,
    Column::NewRequest,
    Column::ChangePercent,
    Column::Lower,
    Column::Upper,
    Column::Limit,
    Column::NewLimit,
    Column::Risk,
    Column::Waste,
];

impl Column {
    /// The name on the command line and in CSV.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The columns of CSV. New ones are only added at the end.
    pub(super) fn csv() -> Vec<Self> {
        Self::iter().filter(|column| *column != Self::Workload).collect()
    }

    pub(super) fn wide(report: &Report) -> Vec<Self> {
        let mut columns = WIDE.to_vec();
        if report.currency.is_some() {
            columns.extend([Self::Cost, Self::NewCost]);
        }
        columns.push(Self::RiskReasons);
        columns
    }

    /// Whether its values are numbers, which tables align at the right.
    pub(super) const fn is_number(self) -> bool {
        matches!(
            self,
            Self::Replicas
                | Self::Request
                | Self::Limit
                | Self::Target
                | Self::Lower
                | Self::Upper
                | Self::NewRequest
                | Self::NewLimit
                | Self::ChangePercent
                | Self::Cost
                | Self::NewCost
                | Self::Samples
                | Self::OomKills
                | Self::ThrottledShare
                | Self::MemoryPeak
        )
    }
}

/// There is no such column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown column {name:?}; did you mean {near}?")]
pub struct UnknownColumn {
    name: String,
    near: String,
}

impl FromStr for Column {
    type Err = UnknownColumn;

    fn from_str(text: &str) -> Result<Self, UnknownColumn> {
        let letters = |name: &str| {
            name.chars()
                .filter(char::is_ascii_alphanumeric)
                .map(|c| c.to_ascii_lowercase())
                .collect::<String>()
        };
        let wanted = letters(text);
        Self::iter().find(|column| letters(column.name()) == wanted).ok_or_else(|| UnknownColumn {
            name: text.to_owned(),
            near: suggestions(text, Self::iter().map(Self::name)).join(", "),
        })
    }
}

/// The value of a column in a row. Absent values are `Unknown`, never 0.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Unknown,
    /// The request or limit stays as it is.
    Unchanged,
    Text(Cow<'a, str>),
    Flag(bool),
    Count(u64),
    Amount(Resource, i64),
    Percent(f64),
    Share(f64),
    Money(f64),
    At(Time),
}

/// One resource of one container.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    report: &'a Report,
    entry: Entry<'a>,
    resource: &'a ResourceReport,
}

/// The rows of a report, and the number of containers that `top` leaves out.
pub(super) fn rows(
    report: &Report,
    key: Option<SortKey>,
    top: Option<usize>,
) -> (Vec<Row<'_>>, usize) {
    let mut all: Vec<Entry<'_>> = entries(report).collect();
    if let Some(key) = key {
        sort(&mut all, key, report);
    }
    let shown = top.unwrap_or(usize::MAX).min(all.len());
    let left_out = all.len() - shown;
    all.truncate(shown);
    let rows = all.into_iter().flat_map(|entry| {
        entry.container.resources.iter().map(move |resource| Row { report, entry, resource })
    });
    (rows.collect(), left_out)
}

impl<'a> Row<'a> {
    pub(super) fn value(&self, column: Column) -> Value<'a> {
        let Self { report, entry: Entry { workload, container, .. }, resource } = *self;
        let text = |text: &'a str| Value::Text(Cow::Borrowed(text));
        let amount = |value: Option<i64>| {
            value.map_or(Value::Unknown, |value| Value::Amount(resource.resource, value))
        };
        match column {
            Column::Cluster => workload.cluster.as_deref().map_or(Value::Unknown, text),
            Column::Namespace => text(&workload.namespace),
            Column::Kind => text(&workload.kind),
            Column::Name => text(&workload.name),
            Column::Workload => Value::Text(Cow::Owned(names::workload(workload))),
            Column::Replicas => count(workload.replicas),
            Column::Vpa => workload.vpa.as_deref().map_or(Value::Unknown, text),
            Column::Container => text(&container.name),
            Column::Role => text(match container.role {
                ContainerRole::Main => "main",
                ContainerRole::Init => "init",
                ContainerRole::Sidecar => "sidecar",
            }),
            Column::Resource => text(resource.resource.into()),
            Column::Unit => text(amounts::base_unit(resource.resource)),
            Column::Request => amount(resource.request),
            Column::Limit => amount(resource.limit),
            Column::Target => amount(resource.target),
            Column::Lower => amount(resource.lower),
            Column::Upper => amount(resource.upper),
            Column::NewRequest => match resource.change.request {
                None if resource.target.is_some() => Value::Unchanged,
                new => amount(new),
            },
            Column::NewLimit => match resource.change.limit {
                None if resource.limit.is_some() && !resource.change.remove_limit => {
                    Value::Unchanged
                }
                new => amount(new),
            },
            Column::RemoveLimit => Value::Flag(resource.change.remove_limit),
            Column::ChangePercent => {
                let change = resource.request.zip(resource.change.request);
                let percent = change.and_then(|(from, to)| amounts::change_percent(from, to));
                percent.map_or(Value::Unknown, Value::Percent)
            }
            Column::Held => resource.change.held.as_deref().map_or(Value::Unknown, text),
            Column::Risk => text(words::level(resource.risk)),
            Column::RiskReasons => {
                let codes: Vec<&str> = resource.risk_reasons.iter().map(words::risk_code).collect();
                if codes.is_empty() {
                    Value::Unknown
                } else {
                    Value::Text(Cow::Owned(codes.join(" ")))
                }
            }
            Column::Waste => text(words::level(resource.waste)),
            Column::Cost => resource.cost.map_or(Value::Unknown, Value::Money),
            Column::NewCost => resource.new_cost.map_or(Value::Unknown, Value::Money),
            Column::Currency => report.currency.as_deref().map_or(Value::Unknown, text),
            Column::Unsaid => resource.unsaid.map_or(Value::Unknown, |gap| text(gap.into())),
            Column::Samples => resource
                .explanation
                .as_ref()
                .map_or(Value::Unknown, |chain| Value::Count(chain.evidence.samples)),
            Column::OomKills => Value::Count(container.oom_kills.into()),
            Column::LastOomKill => container.last_oom_kill.map_or(Value::Unknown, Value::At),
            Column::ThrottledShare => {
                container.throttled_share.map_or(Value::Unknown, Value::Share)
            }
            Column::MemoryPeak => container
                .memory_peak
                .map_or(Value::Unknown, |peak| Value::Amount(Resource::Memory, peak.bytes.0)),
            Column::Shape => workload.shape.as_deref().map_or(Value::Unknown, text),
        }
    }

    /// The risk and its reasons in words.
    pub(super) fn reasons(&self) -> String {
        words::risk_and_limit(self.resource, self.report.at)
    }

    /// Whether the limit is removed.
    pub(super) fn removes_limit(&self) -> bool {
        self.resource.change.remove_limit
    }

    pub(super) fn level(
        &self,
        column: Column,
    ) -> Option<plimsoll_core::rightsizing::report::Level> {
        match column {
            Column::Risk => Some(self.resource.risk),
            Column::Waste => Some(self.resource.waste),
            _ => None,
        }
    }
}

fn count(count: Option<u32>) -> Value<'static> {
    count.map_or(Value::Unknown, |count| Value::Count(count.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_names_are_parsed_in_any_usual_spelling() {
        for text in ["new_request", "new-request", "newRequest", "NEW_REQUEST"] {
            assert_eq!(text.parse(), Ok(Column::NewRequest));
        }
        for column in Column::iter() {
            assert_eq!(column.name().parse(), Ok(column));
        }
        let error = "contaner".parse::<Column>().expect_err("no such column");
        assert_eq!(error.to_string(), "unknown column \"contaner\"; did you mean container?");
    }

    #[test]
    fn numbers_are_those_that_tables_align() {
        let report = crate::report::recommend::test_reports::sample();
        for row in rows(&report, None, None).0 {
            for column in Column::iter() {
                let is_text =
                    matches!(row.value(column), Value::Text(_) | Value::Flag(_) | Value::At(_));
                assert!(!(is_text && column.is_number()), "{}", column.name());
            }
        }
    }
}
