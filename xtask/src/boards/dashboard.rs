//! A dashboard: its variables, its links and the layout of its panels.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::panel::{Panel, datasource};

/// The schema version that Grafana 12.0 writes. Grafana 11 reads it unchanged.
const SCHEMA: u64 = 41;

/// Number of columns of Grafana's grid.
const COLUMNS: u64 = 24;

/// A board.
#[derive(Clone, Debug)]
pub(super) struct Dashboard {
    /// The suffix of its uid after `plimsoll-`, and its file name.
    pub name: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    /// Variables in addition to those that every board has.
    pub variables: Vec<Variable>,
    /// The default time range, counted back from now.
    pub from: &'static str,
    /// The minimum step between two points: at least the scrape interval, or rates have gaps.
    pub interval: &'static str,
    pub rows: Vec<Row>,
}

/// Panels under a heading, laid out from left to right and top to bottom.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub title: &'static str,
    pub panels: Vec<Panel>,
}

/// A variable whose values come from a query.
#[derive(Clone, Debug)]
pub(super) struct Variable {
    pub name: &'static str,
    pub label: &'static str,
    query: String,
    /// The value of `All`. `None`: exactly one value is selected, the first by default.
    all: Option<&'static str>,
}

/// A row of panels.
pub(super) fn row(title: &'static str, panels: Vec<Panel>) -> Row {
    Row { title, panels }
}

/// Variables that filter every board. A Prometheus that scrapes a single cluster has no cluster label, and `.*`
/// matches that too.
fn shared() -> [Variable; 3] {
    [
        Variable::any("cluster", "Cluster", "label_values(plimsoll_build_info, cluster)", ".*"),
        Variable::any(
            "job",
            "Job",
            r#"label_values(plimsoll_build_info{cluster=~"$cluster"}, job)"#,
            ".+",
        ),
        Variable::any(
            "instance",
            "Instance",
            r#"label_values(plimsoll_build_info{cluster=~"$cluster", job=~"$job"}, instance)"#,
            ".+",
        ),
    ]
}

// === impl Variable ===

impl Variable {
    /// A variable with multiple selection, `All` by default.
    pub fn any(name: &'static str, label: &'static str, query: &str, all: &'static str) -> Self {
        Self { name, label, query: super::query::query(query), all: Some(all) }
    }

    /// A variable with a single selection.
    pub fn one(name: &'static str, label: &'static str, query: &str) -> Self {
        Self { name, label, query: super::query::query(query), all: None }
    }

    fn json(&self) -> Value {
        let mut json = json!({
            "current": {},
            "datasource": datasource(),
            "definition": self.query,
            "hide": 0,
            "includeAll": self.all.is_some(),
            "label": self.label,
            "multi": self.all.is_some(),
            "name": self.name,
            "options": [],
            "query": self.query,
            // Refresh when the time range changes, so that values that existed in that range can be selected.
            "refresh": 2,
            "regex": "",
            "skipUrlSync": false,
            "sort": 1,
            "type": "query",
        });
        if let Some(all) = self.all {
            json["allValue"] = json!(all);
            json["current"] = json!({"selected": true, "text": ["All"], "value": ["$__all"]});
        }
        json
    }
}

// === impl Dashboard ===

impl Dashboard {
    /// `plimsoll-overview`.
    pub fn uid(&self) -> String {
        uid(self.name)
    }

    /// The complete JSON, with links to the other boards.
    pub fn json(&self, others: &[Self]) -> Value {
        json!({
            "annotations": {"list": []},
            "description": self.description,
            "editable": false,
            "fiscalYearStartMonth": 0,
            "graphTooltip": 1,
            "id": null,
            "links": self.links(others),
            "panels": self.panels(),
            "refresh": "1m",
            "schemaVersion": SCHEMA,
            "tags": ["plimsoll"],
            "templating": {"list": self.templating()},
            "time": {"from": self.from, "to": "now"},
            "timepicker": {},
            "timezone": "browser",
            "title": self.title,
            "uid": self.uid(),
            "weekStart": "",
        })
    }

    fn templating(&self) -> Vec<Value> {
        let source = json!({
            "current": {},
            "hide": 0,
            "includeAll": false,
            "label": "Data source",
            "multi": false,
            "name": "datasource",
            "options": [],
            "query": "prometheus",
            "refresh": 1,
            "regex": "",
            "skipUrlSync": false,
            "type": "datasource",
        });
        let shared = shared();
        let queries = shared.iter().chain(&self.variables).map(Variable::json);
        std::iter::once(source).chain(queries).collect()
    }

    /// A list of all tagged boards, and a link to each other board that keeps the selected processes.
    fn links(&self, others: &[Self]) -> Vec<Value> {
        let link = |kind: &str, title: &str, url: &str| {
            json!({
                "asDropdown": kind == "dashboards",
                "icon": if kind == "dashboards" { "external link" } else { "dashboard" },
                // Not all variables: `All` on one board is no valid selection on a board that shows a single object.
                "includeVars": false,
                "keepTime": true,
                "tags": if kind == "dashboards" { json!(["plimsoll"]) } else { json!([]) },
                "targetBlank": false,
                "title": title,
                "tooltip": "",
                "type": kind,
                "url": url,
            })
        };
        let by_tag = link("dashboards", "All boards", "");
        let others = others.iter().filter(|other| other.name != self.name).map(|other| {
            let title = other.title.trim_start_matches("Plimsoll / ");
            link("link", title, &to(other.name, SHARED))
        });
        std::iter::once(by_tag).chain(others).collect()
    }

    fn panels(&self) -> Vec<Value> {
        let (mut panels, mut top) = (Vec::new(), 0);
        for row in &self.rows {
            let id = panels.len() as u64 + 1;
            panels.push(json!({
                "collapsed": false,
                "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": top},
                "id": id,
                "panels": [],
                "title": row.title,
                "type": "row",
            }));
            top += 1;
            let (mut left, mut tallest) = (0, 0);
            for panel in &row.panels {
                if left + panel.width > COLUMNS {
                    (left, top, tallest) = (0, top + tallest, 0);
                }
                let place = json!({"h": panel.height, "w": panel.width, "x": left, "y": top});
                panels.push(panel.json(panels.len() as u64 + 1, &place, self.interval));
                left += panel.width;
                tallest = panel.height.max(tallest);
            }
            top += tallest;
        }
        panels
    }
}

/// Variables that mean the same on every board.
const SHARED: &str =
    "${datasource:queryparam}&${cluster:queryparam}&${job:queryparam}&${instance:queryparam}";

fn uid(name: &str) -> String {
    format!("plimsoll-{name}")
}

fn to(name: &str, variables: &str) -> String {
    let uid = uid(name);
    format!("/d/{uid}/{uid}?{variables}")
}

/// The link of a table cell: a board that shows the object of its row.
pub(super) fn link_to(name: &str, title: &str, variables: &[&str]) -> Value {
    let mut wanted = SHARED.to_owned();
    for variable in variables {
        // Writing to a String cannot fail.
        let _ = write!(wanted, "&var-{variable}=${{__data.fields.{variable}}}");
    }
    let url = format!("{}&${{__url_time_range}}", to(name, &wanted));
    json!([{"targetBlank": false, "title": title, "url": url}])
}
