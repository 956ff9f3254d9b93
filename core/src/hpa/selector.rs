//! Label selectors: parses them from `status.selector` of a scale or from a metric's `selector`, matches and prints them.

mod lexer;
mod parser;

use std::{collections::BTreeMap, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// A label selector. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    /// Sorted, without duplicates.
    values: Vec<String>,
}

/// How a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equals,
    DoubleEquals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// Why a string or a `LabelSelector` is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

impl Selector {
    /// Selects no object. Its string form is empty, which would select everything if sent to an API server.
    pub const NOTHING: Self = Self { requirements: Vec::new(), nothing: true };

    /// Parses the string form.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut requirements = parser::requirements(text)?;
        requirements.sort_by(|left, right| left.key.cmp(&right.key));
        Ok(Self { requirements, nothing: false })
    }

    /// The selector of a metric. `None` selects nothing.
    pub fn of_metric(selector: Option<&LabelSelector>) -> Result<Self, SelectorError> {
        let Some(selector) = selector else { return Ok(Self::NOTHING) };
        let mut requirements = Vec::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            requirements.push(Requirement::new(key, Operator::Equals, vec![value.clone()])?);
        }
        for expression in selector.match_expressions.iter().flatten() {
            let operator = match expression.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    let message = format!("{other:?} is not a valid label selector operator");
                    return Err(SelectorError(message));
                }
            };
            let values = expression.values.clone().unwrap_or_default();
            requirements.push(Requirement::new(&expression.key, operator, values)?);
        }
        requirements.sort_by(|left, right| left.key.cmp(&right.key));
        Ok(Self { requirements, nothing: false })
    }

    /// A label that every selected object has, with its only value, for a lookup in an index.
    pub fn required_label(&self) -> Option<(&str, &str)> {
        self.requirements.iter().find_map(|requirement| {
            match (requirement.operator, requirement.values.as_slice()) {
                (Operator::Equals | Operator::DoubleEquals | Operator::In, [value]) => {
                    Some((&*requirement.key, &**value))
                }
                _ => None,
            }
        })
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &Labels) -> bool {
        !self.nothing && self.requirements.iter().all(|requirement| requirement.matches(labels))
    }
}

impl Requirement {
    fn new(key: &str, operator: Operator, values: Vec<String>) -> Result<Self, SelectorError> {
        parser::check(key, operator, &values)?;
        let mut values = values;
        values.sort();
        values.dedup();
        Ok(Self { key: key.to_owned(), operator, values })
    }

    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let is_listed = |value: &String| self.values.contains(value);
        let compare = |holds: fn(i64, i64) -> bool| {
            let numbers = value.zip(self.values.first());
            numbers.is_some_and(|(own, bound)| match (own.parse(), bound.parse()) {
                (Ok(own), Ok(bound)) => holds(own, bound),
                _ => false,
            })
        };
        match self.operator {
            Operator::Equals | Operator::DoubleEquals | Operator::In => {
                value.is_some_and(is_listed)
            }
            Operator::NotEquals | Operator::NotIn => !value.is_some_and(is_listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => compare(|own, bound| own > bound),
            Operator::LessThan => compare(|own, bound| own < bound),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, values, .. } = self;
        let values = values.join(",");
        match self.operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// The selector of a metric as in upstream's messages, which is how Go prints the struct.
pub fn as_in_messages(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".to_owned() };
    let label = |(key, value): (&String, &String)| format!("{key}: {value},");
    let labels = selector.match_labels.iter().flatten().map(label).collect::<Vec<_>>().concat();
    let expression = |requirement: &LabelSelectorRequirement| {
        let values = requirement.values.as_deref().unwrap_or_default().join(" ");
        let (key, operator) = (&requirement.key, &requirement.operator);
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    };
    let expressions = selector.match_expressions.iter().flatten().map(expression);
    let expressions = expressions.collect::<Vec<_>>().concat();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_selector_is_printed_in_its_canonical_form_and_matches() {
        for (text, printed, yes, no) in [
            ("app=web", "app=web", labels(&[("app", "web")]), labels(&[])),
            (
                " z , app == web",
                "app==web,z",
                labels(&[("app", "web"), ("z", "")]),
                labels(&[("z", "1")]),
            ),
            ("a in (y, x,y)", "a in (x,y)", labels(&[("a", "x")]), labels(&[("a", "z")])),
            ("a notin (x)", "a notin (x)", labels(&[]), labels(&[("a", "x")])),
            ("a!=x", "a!=x", labels(&[("b", "x")]), labels(&[("a", "x")])),
            ("!a", "!a", labels(&[]), labels(&[("a", "x")])),
            (
                "a>3,b<2",
                "a>3,b<2",
                labels(&[("a", "4"), ("b", "1")]),
                labels(&[("a", "3"), ("b", "1")]),
            ),
            ("", "", labels(&[]), Labels::from([("never".into(), "tested".into())])),
        ] {
            let selector = Selector::parse(text).expect(text);
            assert_eq!(selector.to_string(), printed);
            assert!(selector.matches(&yes), "{text}");
            assert!(text.is_empty() || !selector.matches(&no), "{text}");
        }
        assert!(!Selector::NOTHING.matches(&labels(&[])));
        assert_eq!(Selector::NOTHING.to_string(), "");
    }

    #[test]
    fn text_that_is_no_selector_is_refused() {
        for text in
            ["=", "a=b,", "a in", "a in (", "a b", "-a=b", "a=-b", "a>x", ",", "a==b c", "!"]
        {
            Selector::parse(text).expect_err(text);
        }
    }
}
