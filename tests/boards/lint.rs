//! The rules of Grafana's dashboard-linter, as strict as its documentation where its code is more lenient.

use serde_json::Value;

use super::{
    families, grafana_units::UNITS, lint_exclusions, list, panels, queried, query, targets, text,
};

/// A rule, with its name in Grafana's linter.
pub type Rule = (&'static str, fn(&Value) -> Vec<String>);

/// All rules except `target-logql`: no board queries Loki, as `panel-datasource` ensures.
pub const RULES: [Rule; 15] = [
    ("template-datasource", datasource),
    ("template-job", |board| template(board, "job")),
    ("template-instance", |board| template(board, "instance")),
    ("template-label-promql", label_promql),
    ("template-on-time-change-reload", reload),
    ("panel-datasource", panel_datasource),
    ("panel-title-description", title_description),
    ("panel-units", units),
    ("panel-no-targets", no_targets),
    ("target-promql", promql),
    ("target-rate-interval", rate_interval),
    ("target-job", |board| narrowed(board, "job")),
    ("target-instance", |board| narrowed(board, "instance")),
    ("target-counter-agg", counters),
    ("uneditable-dashboard", uneditable),
];

const DATASOURCE: &str = "${datasource}";

/// All findings for a board, each with its rule.
pub fn findings(board: &Value, rules: &[Rule]) -> Vec<(&'static str, String)> {
    rules
        .iter()
        .flat_map(|(name, rule)| rule(board).into_iter().map(|finding| (*name, finding)))
        .collect()
}

fn datasource(board: &Value) -> Vec<String> {
    let sources: Vec<_> =
        list(&board["templating"], "list").filter(|one| one["type"] == "datasource").collect();
    let right = |one: &&Value| {
        one["name"] == "datasource" && one["label"] == "Data source" && one["query"] == "prometheus"
    };
    match sources[..] {
        [one] if right(&one) => Vec::new(),
        [_] => vec!["the data source is not `datasource`, `Data source`, of Prometheus".to_owned()],
        _ => vec![format!("{} variables for a data source", sources.len())],
    }
}

fn template(board: &Value, name: &str) -> Vec<String> {
    let Some(variable) = queried(board).find(|variable| variable["name"] == name) else {
        return vec![format!("no variable {name}, filled by a query")];
    };
    let (first, rest) = name.split_at(1);
    let label = first.to_uppercase() + rest;
    [
        (variable["datasource"]["uid"] == DATASOURCE, "asks another data source"),
        (variable["label"] == label, "has another label"),
        (variable["multi"] == true, "does not allow several values"),
        (variable["includeAll"] == true, "does not allow all values"),
        (variable["allValue"] == ".+", "does not match .+ for all"),
    ]
    .into_iter()
    .filter(|(holds, _)| !holds)
    .map(|(_, what)| format!("the variable {name} {what}"))
    .collect()
}

fn label_promql(board: &Value) -> Vec<String> {
    let wrong = |variable: &Value| {
        let (name, query) = (text(variable, "name"), text(variable, "query"));
        let inside = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        let Some((series, label)) = inside.and_then(|inside| inside.rsplit_once(", ")) else {
            return Some(format!("{name}: {query:?} is no label_values(SERIES, LABEL)"));
        };
        let is_label = label.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        match query::parse(series) {
            Ok(_) if is_label => None,
            Ok(_) => Some(format!("{name}: {label:?} is no label")),
            Err(why) => Some(format!("{name}: {why}")),
        }
    };
    queried(board).filter_map(wrong).collect()
}

fn reload(board: &Value) -> Vec<String> {
    let stale = queried(board).filter(|variable| variable["refresh"] != 2);
    stale
        .map(|variable| format!("{} stays when the time changes", text(variable, "name")))
        .collect()
}

fn panel_datasource(board: &Value) -> Vec<String> {
    let is_right = |one: &Value| {
        one["datasource"]["uid"] == DATASOURCE && one["datasource"]["type"] == "prometheus"
    };
    let of_panels = panels(board).filter(|panel| !is_right(panel));
    let of_targets = targets(board).filter(|(_, target)| !is_right(target)).map(|(panel, _)| panel);
    let wrong = of_panels.chain(of_targets);
    wrong.map(|panel| format!("{}: another data source", text(panel, "title"))).collect()
}

fn title_description(board: &Value) -> Vec<String> {
    let lacks_description =
        |panel: &&Value| text(panel, "title").is_empty() || text(panel, "description").len() < 20;
    let wrong = panels(board).filter(lacks_description);
    wrong.map(|panel| format!("panel {}: no title, or no description", panel["id"])).collect()
}

/// Units of panels and of single columns.
fn units(board: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for panel in panels(board) {
        let config = &panel["fieldConfig"];
        let of_fields = list(config, "overrides").flat_map(|entry| list(entry, "properties"));
        let of_fields =
            of_fields.filter(|property| property["id"] == "unit").map(|one| &one["value"]);
        for unit in of_fields.chain([&config["defaults"]["unit"]]) {
            if !unit.as_str().is_some_and(|unit| UNITS.contains(&unit)) {
                wrong.push(format!("{}: {unit} is no unit", text(panel, "title")));
            }
        }
    }
    wrong
}

fn no_targets(board: &Value) -> Vec<String> {
    let silent = panels(board).filter(|panel| list(panel, "targets").count() == 0);
    silent.map(|panel| format!("{}: asks nothing", text(panel, "title"))).collect()
}

fn promql(board: &Value) -> Vec<String> {
    each_query(board, |_, parsed| parsed.err().into_iter().collect())
}

fn rate_interval(board: &Value) -> Vec<String> {
    each_selector(board, |selector_use| {
        let is_rate = matches!(selector_use.function, Some("rate" | "irate" | "increase"));
        let wrong = is_rate && !selector_use.has_rate_interval();
        wrong.then(|| format!("{} over another range than $__rate_interval", selector_use.name()))
    })
}

fn narrowed(board: &Value, label: &str) -> Vec<String> {
    each_selector(board, |selector_use| {
        let wrong = !selector_use.is_narrowed_by(label);
        wrong.then(|| format!("{} without {label}=~\"${label}\"", selector_use.name()))
    })
}

fn counters(board: &Value) -> Vec<String> {
    let known = families::documented();
    each_selector(board, |selector_use| {
        let name = selector_use.name();
        let is_counted = matches!(selector_use.function, Some("rate" | "irate" | "increase"));
        // Some of upstream's counters lack the suffix of counters, and one of its gauges has it.
        let grows = known.get(name).map_or_else(
            || name.ends_with("_total") && !lint_exclusions::is_gauge(name),
            |family| family.kind == "counter",
        );
        let wrong = grows && !is_counted;
        wrong.then(|| format!("{} outside of rate, irate and increase", selector_use.name()))
    })
}

fn uneditable(board: &Value) -> Vec<String> {
    let wrong = board["editable"] != false;
    wrong.then(|| "it is editable".to_owned()).into_iter().collect()
}

type Parsed = Result<promql_parser::parser::Expr, String>;

/// Findings of a check on each query, with its panel.
pub fn each_query(board: &Value, check: impl Fn(&Value, Parsed) -> Vec<String>) -> Vec<String> {
    let wrong = targets(board).flat_map(|(panel, target)| {
        let found = check(target, query::parse(text(target, "expr")));
        let title = text(panel, "title").to_owned();
        found.into_iter().map(move |finding| format!("{title}: {finding}"))
    });
    wrong.collect()
}

/// Findings of a check on each selector. Queries that cannot be parsed are skipped: another rule finds them.
pub fn each_selector(
    board: &Value,
    check: impl Fn(&query::SelectorUse) -> Option<String>,
) -> Vec<String> {
    each_query(board, |_, parsed| {
        let selectors = parsed.map(|expr| query::selectors(&expr)).unwrap_or_default();
        selectors.iter().filter_map(&check).collect()
    })
}
