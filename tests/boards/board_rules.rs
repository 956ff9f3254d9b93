//! Our own rules: links resolve, variables are used, panels do not overlap, and no query invents data.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    lint::{Rule, each_query},
    list, panels, queried, query, targets, text,
};

/// All rules.
pub const RULES: [Rule; 9] = [
    ("links-lead-somewhere", links),
    ("variables-are-used", variables),
    ("panels-do-not-overlap", panel_positions),
    ("no-made-up-data", invented_data),
    ("clusters-stay-apart", clusters),
    ("steps-are-no-shorter-than-scrapes", steps),
    ("lines-have-names", names),
    ("options-are-of-something", options),
    ("identity", identity),
];

/// The variables of a board, by its uid.
fn variables_of_board(uid: &str) -> Option<BTreeSet<String>> {
    let (_, board) = super::boards().into_iter().find(|(_, board)| board["uid"] == uid)?;
    let variables = list(&board["templating"], "list");
    Some(variables.map(|variable| text(variable, "name").to_owned()).collect())
}

/// Collects every link of a board, with the element that contains it.
fn link_urls(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("url").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| link_urls(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| link_urls(value, found)),
        _ => {}
    }
}

/// Links lead to existing boards and use only variables of those boards and fields of the panel.
fn links(board: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut urls = Vec::new();
    link_urls(board, &mut urls);
    let own: BTreeSet<&str> =
        list(&board["templating"], "list").map(|variable| text(variable, "name")).collect();
    for url in urls.iter().filter(|url| !url.is_empty()) {
        let target = url.strip_prefix("/d/").and_then(|rest| rest.split_once('?'));
        let Some((path, parameters)) = target else {
            wrong.push(format!("{url}: leads to no board"));
            continue;
        };
        let Some(variables) = variables_of_board(path.split('/').next().unwrap_or_default()) else {
            wrong.push(format!("{url}: no such board"));
            continue;
        };
        for parameter in parameters.split('&') {
            let name = match parameter.strip_prefix("${").and_then(|rest| rest.split_once(':')) {
                Some((name, _)) if own.contains(name) => name,
                Some((name, _)) => {
                    wrong.push(format!("{url}: the board has no variable {name}"));
                    continue;
                }
                None if parameter == "${__url_time_range}" => continue,
                None => parameter.trim_start_matches("var-").split('=').next().unwrap_or_default(),
            };
            if !variables.contains(name) {
                wrong.push(format!("{url}: the linked board has no variable {name}"));
            }
        }
    }
    for panel in panels(board) {
        let mut urls = Vec::new();
        link_urls(&panel["fieldConfig"], &mut urls);
        let columns: BTreeSet<&str> = columns(panel).collect();
        for field in urls.iter().flat_map(|url| url.split("${__data.fields.").skip(1)) {
            let field = field.split('}').next().unwrap_or_default();
            if !columns.contains(field) {
                wrong.push(format!("{}: a link needs {field}", text(panel, "title")));
            }
        }
    }
    wrong
}

/// The fields that a table shows.
fn columns(panel: &Value) -> impl Iterator<Item = &str> {
    let filter = list(panel, "transformations").find(|one| one["id"] == "filterFieldsByName");
    let names = filter.and_then(|filter| filter["options"]["include"]["names"].as_array());
    names.into_iter().flatten().filter_map(Value::as_str)
}

fn variables(board: &Value) -> Vec<String> {
    let mut without_lists = board.clone();
    without_lists["links"] = Value::Null;
    let rest = without_lists.to_string();
    let unused = |name: &&str| {
        let usages = [format!("\"${name}\\\""), format!("{{{name}:"), format!("${name} ")];
        let inside = rest.contains(&format!("=~\\\"${name}\\\""));
        !inside && !usages.iter().any(|usage| rest.contains(usage))
    };
    let names = queried(board).map(|variable| text(variable, "name"));
    names.filter(unused).map(|name| format!("no query uses ${name}")).collect()
}

/// Panels do not overlap and stay within the grid; their IDs are unique.
fn panel_positions(board: &Value) -> Vec<String> {
    let (mut taken, mut ids, mut wrong) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for panel in list(board, "panels") {
        let side = |name: &str| panel["gridPos"][name].as_u64().unwrap_or(u64::MAX);
        let (x, y, width, height) = (side("x"), side("y"), side("w"), side("h"));
        let title = text(panel, "title");
        if !ids.insert(panel["id"].as_u64()) {
            wrong.push(format!("{title}: its id is that of another panel"));
        }
        if x.saturating_add(width) > 24 || width == 0 || height == 0 || height > 20 {
            wrong.push(format!("{title}: does not fit"));
            continue;
        }
        let cells = (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y)));
        if cells.filter(|cell| !taken.insert(*cell)).count() > 0 {
            wrong.push(format!("{title}: overlaps another panel"));
        }
    }
    wrong
}

/// Missing data is shown as missing.
fn invented_data(board: &Value) -> Vec<String> {
    each_query(board, |target, _| {
        let query = text(target, "expr");
        let words = ["vector(", "absent(", "scalar(", "or on"];
        let found = words.into_iter().filter(|word| query.contains(word));
        found.map(|word| format!("{word} makes up data")).collect()
    })
}

/// Every selector can be limited to a cluster, and queries about objects keep clusters apart.
fn clusters(board: &Value) -> Vec<String> {
    each_query(board, |_, parsed| {
        let selectors = parsed.map(|expr| query::selectors(&expr)).unwrap_or_default();
        let loose = selectors.iter().filter(|selector_use| !selector_use.is_narrowed_by("cluster"));
        loose.map(|selector_use| format!("{} of any cluster", selector_use.name())).collect()
    })
}

/// Grafana takes a target's interval as the scrape interval and defaults to 15 seconds: rates of series that are
/// scraped every minute would then have no data.
fn steps(board: &Value) -> Vec<String> {
    each_query(board, |target, _| {
        let right = matches!(text(target, "interval"), "15s" | "1m");
        (!right).then(|| "how often is it scraped?".to_owned()).into_iter().collect()
    })
}

fn names(board: &Value) -> Vec<String> {
    let nameless = targets(board).filter(|(_, target)| {
        target["format"] != "table" && text(target, "legendFormat").is_empty()
    });
    nameless.map(|(panel, _)| format!("{}: a line without a name", text(panel, "title"))).collect()
}

/// Overrides for a field refer to a field that exists.
fn options(board: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for panel in panels(board) {
        let mut fields: BTreeSet<String> = columns(panel).map(str::to_owned).collect();
        for one in list(panel, "transformations").filter(|one| one["id"] == "organize") {
            let names = one["options"]["renameByName"].as_object().into_iter().flatten();
            fields.extend(names.filter_map(|(_, name)| Some(name.as_str()?.to_owned())));
        }
        let legends: Vec<&str> =
            list(panel, "targets").map(|target| text(target, "legendFormat")).collect();
        fields.extend(legends.iter().map(|legend| (*legend).to_owned()));
        for entry in list(&panel["fieldConfig"], "overrides") {
            let name = text(&entry["matcher"], "options");
            // With a label in its legend, a line is named after the label's value.
            let by_label = legends.iter().any(|legend| legend.contains("{{"));
            if entry["matcher"]["id"] == "byName" && !by_label && !fields.contains(name) {
                wrong.push(format!("{}: there is no field {name}", text(panel, "title")));
            }
        }
        let sorted = list(&panel["options"], "sortBy").map(|by| text(by, "displayName"));
        for name in sorted.filter(|name| !fields.contains(*name)) {
            wrong.push(format!("{}: cannot be sorted by {name}", text(panel, "title")));
        }
    }
    wrong
}

fn identity(board: &Value) -> Vec<String> {
    let uid = text(board, "uid");
    [
        (uid.starts_with("plimsoll-") && uid.len() <= 40, "its uid is none of ours"),
        (board["tags"] == serde_json::json!(["plimsoll"]), "the tag `plimsoll` is missing"),
        (
            text(board, "title").starts_with("Plimsoll / "),
            "its title does not start with `Plimsoll / `",
        ),
        (text(board, "description").len() > 20, "the description is missing or too short"),
        (board["schemaVersion"].as_u64().is_some_and(|schema| schema >= 39), "its schema is old"),
        (text(&board["time"], "to") == "now", "it does not show what is now"),
        (board.to_string().len() < 200_000, "it does not fit into a ConfigMap with its copy"),
    ]
    .into_iter()
    .filter(|(holds, _)| !holds)
    .map(|(_, what)| what.to_owned())
    .collect()
}
