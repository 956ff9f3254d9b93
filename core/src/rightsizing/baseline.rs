//! A previous report as the baseline: what is new since then.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    report::{Level, SCHEMA_VERSION},
    row_key::RowKey,
    survey::Resource,
};

/// The largest file that is read.
const MAX_FILE_BYTES: usize = 256 << 20;

/// What a previous report says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Baseline {
    /// The score of all workloads.
    pub score: Option<u32>,
    /// What all requests cost a month.
    pub cost: Option<f64>,
    /// The currency of the cost.
    pub currency: Option<String>,
    rows: BTreeMap<RowKey, BaselineRow>,
}

/// A row of a previous report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaselineRow {
    /// How dangerous it was.
    pub risk: Level,
    /// How much was wasted.
    pub waste: Level,
    /// Whether it was to be changed.
    pub changes: bool,
}

/// A baseline that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BaselineError {
    #[error("the baseline has {0} bytes; at most {MAX_FILE_BYTES} are read")]
    TooLarge(usize),
    /// It is not a report.
    #[error("the baseline is not a report: {0}; make one with `plimsoll recommend -o json`")]
    Invalid(String),
    /// It is another report.
    #[error("the baseline is a report of `{0}`; make one with `plimsoll recommend -o json`")]
    Kind(String),
    /// It was made by a version that is too new.
    #[error(
        "the baseline has schema version {0}, and this version knows {SCHEMA_VERSION}; create a new one"
    )]
    SchemaVersion(u32),
    /// A row is there twice.
    #[error("the baseline has {0} twice; create a new one")]
    Duplicate(Box<RowKey>),
}

// Only what is compared, so that fields of later versions do not matter.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    schema_version: u32,
    kind: String,
}

#[derive(Deserialize)]
struct Body {
    currency: Option<String>,
    totals: BaselineTotals,
    workloads: Vec<BaselineWorkload>,
}

#[derive(Deserialize)]
struct BaselineTotals {
    cpu: BaselineCost,
    memory: BaselineCost,
    score: Option<BaselineScore>,
}

#[derive(Deserialize)]
struct BaselineCost {
    cost: Option<f64>,
}

#[derive(Deserialize)]
struct BaselineScore {
    value: u32,
}

#[derive(Deserialize)]
struct BaselineWorkload {
    cluster: Option<String>,
    namespace: String,
    kind: String,
    name: String,
    containers: Vec<BaselineContainer>,
}

#[derive(Deserialize)]
struct BaselineContainer {
    name: String,
    resources: Vec<BaselineResource>,
}

#[derive(Deserialize)]
struct BaselineResource {
    resource: Resource,
    risk: Level,
    waste: Level,
    change: BaselineChange,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BaselineChange {
    request: Option<i64>,
    limit: Option<i64>,
    #[serde(default)]
    remove_limit: bool,
}

impl Baseline {
    /// Parses a report as `plimsoll recommend -o json` prints it.
    pub fn from_json(text: &str) -> Result<Self, BaselineError> {
        if text.len() > MAX_FILE_BYTES {
            return Err(BaselineError::TooLarge(text.len()));
        }
        let invalid = |error: serde_json::Error| BaselineError::Invalid(error.to_string());
        let head: Head = serde_json::from_str(text).map_err(invalid)?;
        if head.kind != "recommend" {
            return Err(BaselineError::Kind(head.kind));
        }
        if head.schema_version != SCHEMA_VERSION {
            return Err(BaselineError::SchemaVersion(head.schema_version));
        }
        let body: Body = serde_json::from_str(text).map_err(invalid)?;
        Self::from_body(body)
    }

    fn from_body(body: Body) -> Result<Self, BaselineError> {
        let totals = &body.totals;
        let mut baseline = Self {
            score: totals.score.as_ref().map(|score| score.value),
            cost: total_cost(totals.cpu.cost, totals.memory.cost),
            currency: body.currency,
            rows: BTreeMap::new(),
        };
        for workload in body.workloads {
            for container in workload.containers {
                for row in container.resources {
                    let key = RowKey {
                        cluster: workload.cluster.clone(),
                        namespace: workload.namespace.clone(),
                        kind: workload.kind.clone(),
                        name: workload.name.clone(),
                        container: container.name.clone(),
                        resource: row.resource,
                    };
                    let BaselineChange { request, limit, remove_limit } = row.change;
                    let changes = request.is_some() || limit.is_some() || remove_limit;
                    let of_row = BaselineRow { risk: row.risk, waste: row.waste, changes };
                    if baseline.rows.insert(key.clone(), of_row).is_some() {
                        return Err(BaselineError::Duplicate(Box::new(key)));
                    }
                }
            }
        }
        Ok(baseline)
    }

    /// What it says about a row; `None` if the row is new.
    pub fn row(&self, key: &RowKey) -> Option<BaselineRow> {
        self.rows.get(key).copied()
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// The cost of both resources, if that of one is known.
pub(super) fn total_cost(cpu: Option<f64>, memory: Option<f64>) -> Option<f64> {
    match (cpu, memory) {
        (None, None) => None,
        (cpu, memory) => Some(cpu.unwrap_or(0.0) + memory.unwrap_or(0.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{
        "schemaVersion": 1, "kind": "recommend", "version": "9.9.9", "somethingNew": {"a": 1},
        "totals": {"cpu": {"requested": 1, "needed": 1, "cost": 12.5}, "memory": {"requested": 1, "needed": 1}, "score": {"value": 58}},
        "workloads": [
            {"namespace": "shop", "kind": "Deployment", "name": "web", "containers": [
                {"name": "main", "resources": [
                    {"resource": "cpu", "risk": "high", "waste": "ok", "change": {"request": 5}},
                    {"resource": "memory", "risk": "unsaid", "waste": "low", "change": {"held": "because"}}
                ]}
            ]},
            {"cluster": "eu", "namespace": "shop", "kind": "Deployment", "name": "web", "containers": [
                {"name": "main", "resources": [{"resource": "cpu", "risk": "ok", "waste": "high", "change": {"removeLimit": true}}]}
            ]}
        ]
    }"#;

    fn key(cluster: Option<&str>, resource: Resource) -> RowKey {
        RowKey {
            cluster: cluster.map(Into::into),
            namespace: "shop".to_owned(),
            kind: "Deployment".to_owned(),
            name: "web".to_owned(),
            container: "main".to_owned(),
            resource,
        }
    }

    #[test]
    fn rows_are_matched_by_what_identifies_them() {
        let baseline = Baseline::from_json(REPORT).expect("a baseline");
        assert_eq!((baseline.score, baseline.cost, baseline.len()), (Some(58), Some(12.5), 3));
        let row = |risk, waste, changes| Some(BaselineRow { risk, waste, changes });
        for (cluster, resource, expected) in [
            (None, Resource::Cpu, row(Level::High, Level::Ok, true)),
            (None, Resource::Memory, row(Level::Unsaid, Level::Low, false)),
            (Some("eu"), Resource::Cpu, row(Level::Ok, Level::High, true)),
            (Some("eu"), Resource::Memory, None),
            (Some("us"), Resource::Cpu, None),
        ] {
            assert_eq!(baseline.row(&key(cluster, resource)), expected, "{cluster:?} {resource}");
        }
        let other = RowKey { container: "proxy".to_owned(), ..key(None, Resource::Cpu) };
        assert_eq!(baseline.row(&other), None);
    }

    #[test]
    fn a_file_that_is_no_baseline_is_one_line() {
        let twice = REPORT.replace(r#""cluster": "eu", "#, "");
        for (text, message) in [
            (
                REPORT.replace("recommend", "status"),
                "the baseline is a report of `status`; make one with `plimsoll recommend -o json`",
            ),
            (
                REPORT.replace(r#""schemaVersion": 1"#, r#""schemaVersion": 2"#),
                "the baseline has schema version 2, and this version knows 1; create a new one",
            ),
            (twice, "the baseline has shop/Deployment/web main cpu twice; create a new one"),
            (
                "{}".to_owned(),
                "the baseline is not a report: missing field `schemaVersion` at line 1 column 2; make one with `plimsoll \
                 recommend -o json`",
            ),
        ] {
            assert_eq!(Baseline::from_json(&text).expect_err("invalid").to_string(), message);
        }
        for text in ["", "[]", "not JSON", &REPORT.replace("\"high\"", "\"enormous\"")] {
            let error = Baseline::from_json(text).expect_err(text);
            assert!(matches!(error, BaselineError::Invalid(_)), "{error}");
        }
    }
}
