//! Owns the variables of a board: what they stand at, and texts in which they are filled in.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::prometheus_client::{Prometheus, Window};

/// What one variable stands at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum VariableValue {
    /// All there are, with the expression that matches them.
    All(String),
    /// This one.
    One(String),
}

/// What all variables of a board stand at.
#[derive(Clone, Debug, Default)]
pub(super) struct Variables {
    values: BTreeMap<String, VariableValue>,
    labels: Vec<(String, String)>,
}

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueFormat {
    /// Inside of a regular expression in quotes.
    Matcher,
    /// For people.
    Plain,
}

// === impl Variables ===

impl Variables {
    /// As a board stands when it is opened, with those that are `set` elsewhere.
    pub fn of(
        board: &Value,
        prometheus: &Prometheus,
        window: Window,
        set: &[(String, String)],
    ) -> Result<Self> {
        let mut variables = Self::default();
        for variable in board["templating"]["list"].as_array().into_iter().flatten() {
            let name = variable["name"].as_str().context("a variable without a name")?;
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
                    // As Grafana does where there are none.
                    VariableValue::One(values.into_iter().next().unwrap_or_default())
                }
            };
            let label = variable["label"].as_str().unwrap_or(name);
            variables.labels.push((label.to_owned(), standing.plain().to_owned()));
            variables.values.insert(name.to_owned(), standing);
        }
        Ok(variables)
    }

    /// What `label_values(SERIES, LABEL)` has.
    fn values(&self, query: &str, prometheus: &Prometheus, window: Window) -> Result<Vec<String>> {
        let inside = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        let Some((series, label)) = inside.and_then(|inside| inside.rsplit_once(',')) else {
            bail!("{query:?} is no label_values(SERIES, LABEL)");
        };
        prometheus.label_values(label.trim(), &self.query(series, &[]), window)
    }

    /// Names as people read them, and what they stand at.
    pub fn shown(&self) -> &[(String, String)] {
        &self.labels
    }

    /// A query with everything filled in, of Grafana's own variables those in `more`.
    pub fn query(&self, text: &str, more: &[(&str, String)]) -> String {
        self.fill(text, more, ValueFormat::Matcher)
    }

    /// A title or the like.
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
    Ok(all.with_context(|| format!("{name}: what does All match?"))?.to_owned())
}

/// The name behind a dollar sign, and what follows it.
fn name_at_start(text: &str) -> (&str, &str) {
    if let Some((name, behind)) = text.strip_prefix('{').and_then(|inside| inside.split_once('}')) {
        return (name.split(':').next().unwrap_or(name), behind);
    }
    let end = text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    text.split_at(end.unwrap_or(text.len()))
}

/// A value as it may stand in a regular expression that stands in quotes.
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
    fn variables_are_filled_in_and_nothing_else_is() {
        let more = [("__range", "21600s".to_owned())];
        assert_eq!(
            variables()
                .query(r#"rate(x{a=~"$cluster",b=~"${name:regex}"}[$__range]) # $other $"#, &more),
            r#"rate(x{a=~".*",b=~"web\\.1"}[21600s]) # $other $"#
        );
        assert_eq!(variables().plain("$name of $cluster"), "web.1 of All");
    }
}
