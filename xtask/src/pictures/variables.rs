//! The variables of a board: their values, and their replacement in texts.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use plimsoll_charts::axis::TimeRange;
use serde_json::Value;

use super::prometheus_client::Prometheus;

/// The value of one variable.
#[derive(Clone, Debug, PartialEq, Eq)]
enum VariableValue {
    /// All values, with the expression that matches them.
    All(String),
    /// One value.
    One(String),
}

/// The values of all variables of a board.
#[derive(Clone, Debug, Default)]
pub(super) struct Variables {
    values: BTreeMap<String, VariableValue>,
    labels: Vec<(String, String)>,
}

/// How a value is escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueFormat {
    /// For a regular expression in quotes.
    Matcher,
    /// For display.
    Plain,
}

// === impl Variables ===

impl Variables {
    /// The default values of a board, overridden by those in `set`.
    pub fn of(
        board: &Value,
        prometheus: &Prometheus,
        window: TimeRange,
        set: &[(String, String)],
    ) -> Result<Self> {
        let mut variables = Self::default();
        for variable in board["templating"]["list"].as_array().into_iter().flatten() {
            let name = variable["name"].as_str().context("a variable has no name")?;
            if variable["type"] != "query" {
                continue;
            }
            let given = set.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
            let standing = match (given, variable["includeAll"] == true) {
                (Some(value), _) => VariableValue::One(value),
                (None, true) => VariableValue::All(all(variable, name)?),
                (None, false) => {
                    let query = variable["query"].as_str().unwrap_or_default();
                    let values = variables.values(query, prometheus, window)?;
                    // Grafana uses an empty value if there are none.
                    VariableValue::One(values.into_iter().next().unwrap_or_default())
                }
            };
            let label = variable["label"].as_str().unwrap_or(name);
            variables.labels.push((label.to_owned(), standing.plain().to_owned()));
            variables.values.insert(name.to_owned(), standing);
        }
        Ok(variables)
    }

    /// The values that `label_values(SERIES, LABEL)` returns.
    fn values(
        &self,
        query: &str,
        prometheus: &Prometheus,
        window: TimeRange,
    ) -> Result<Vec<String>> {
        let inside = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        let Some((series, label)) = inside.and_then(|inside| inside.rsplit_once(',')) else {
            bail!("{query:?} is not label_values(SERIES, LABEL)");
        };
        prometheus.label_values(label.trim(), &self.query(series, &[]), window)
    }

    /// Display names and values.
    pub fn shown(&self) -> &[(String, String)] {
        &self.labels
    }

    /// A query with all variables replaced; `more` has Grafana's built-in ones.
    pub fn query(&self, text: &str, more: &[(&str, String)]) -> String {
        self.fill(text, more, ValueFormat::Matcher)
    }

    /// A title with variables replaced.
    pub fn plain(&self, text: &str) -> String {
        self.fill(text, &[], ValueFormat::Plain)
    }

    fn fill(&self, text: &str, more: &[(&str, String)], form: ValueFormat) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            filled.push_str(before);
            let (name, behind) = name_at_start(after);
            match self.value(name, more, form) {
                Some(value) if !name.is_empty() => {
                    filled.push_str(&value);
                    rest = behind;
                }
                _ => {
                    filled.push('$');
                    rest = after;
                }
            }
        }
        filled + rest
    }

    fn value(&self, name: &str, more: &[(&str, String)], form: ValueFormat) -> Option<String> {
        if let Some((_, value)) = more.iter().find(|(known, _)| *known == name) {
            return Some(value.clone());
        }
        Some(match (self.values.get(name)?, form) {
            (VariableValue::All(expression), ValueFormat::Matcher) => expression.clone(),
            (VariableValue::One(value), ValueFormat::Matcher) => escape(value),
            (standing, ValueFormat::Plain) => standing.plain().to_owned(),
        })
    }
}

impl VariableValue {
    fn plain(&self) -> &str {
        match self {
            Self::All(_) => "All",
            Self::One(value) => value,
        }
    }
}

fn all(variable: &Value, name: &str) -> Result<String> {
    let all = variable["allValue"].as_str();
    Ok(all.with_context(|| format!("variable {name} has no `allValue`"))?.to_owned())
}

/// The variable name after a dollar sign, and the rest of the text.
fn name_at_start(text: &str) -> (&str, &str) {
    if let Some((name, behind)) = text.strip_prefix('{').and_then(|inside| inside.split_once('}')) {
        return (name.split(':').next().unwrap_or(name), behind);
    }
    let end = text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    text.split_at(end.unwrap_or(text.len()))
}

/// Escapes a value for a regular expression in quotes.
fn escape(value: &str) -> String {
    value.chars().fold(String::new(), |mut escaped, letter| {
        if r"\^$.|?*+()[]{}".contains(letter) {
            escaped.push_str(r"\\");
        }
        escaped.push(letter);
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> Variables {
        let standing = [
            ("cluster", VariableValue::All(".*".into())),
            ("name", VariableValue::One("web.1".into())),
        ];
        let standing = standing.map(|(name, standing)| (name.to_owned(), standing));
        Variables { values: standing.into(), labels: Vec::new() }
    }

    #[test]
    fn only_variables_are_substituted() {
        let more = [("__range", "21600s".to_owned())];
        assert_eq!(
            variables()
                .query(r#"rate(x{a=~"$cluster",b=~"${name:regex}"}[$__range]) # $other $"#, &more),
            r#"rate(x{a=~".*",b=~"web\\.1"}[21600s]) # $other $"#
        );
        assert_eq!(variables().plain("$name of $cluster"), "web.1 of All");
    }
}
