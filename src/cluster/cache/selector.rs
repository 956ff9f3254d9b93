//! Label selectors as compact canonical text, in the syntax of the API.

use std::{collections::BTreeMap, fmt, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

mod label_index;
pub(super) mod labels;
mod parse;

pub(crate) use label_index::{LabelIndex, label_hash, remove_name};
pub use labels::Labels;
pub(crate) use parse::SelectorError;
use parse::{convert_expression, one_of, parse_requirement};

/// A selector that matches no pod, in the syntax of the API, so that it can be sent there like any other.
const NOTHING: &str = "!plimsoll.dev/nothing,plimsoll.dev/nothing";

/// A label selector, as canonical text in one allocation that clones share. Two selectors that were written differently
/// but have the same requirements are equal.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Selector(Arc<str>);

/// One requirement of a selector: borrowed from its canonical text.
#[derive(Clone, Copy)]
struct Requirement<'a> {
    key: &'a str,
    operator: Operator<'a>,
}

/// Values are sorted and separated by commas, as in the canonical text.
#[derive(Clone, Copy)]
enum Operator<'a> {
    DoesNotExist,
    Exists,
    In(&'a str),
    NotIn(&'a str),
    GreaterThan(i64),
    LessThan(i64),
}

impl Selector {
    pub fn nothing() -> Self {
        Self(NOTHING.into())
    }

    pub fn everything() -> Self {
        Self("".into())
    }

    /// Matches objects that have all of these labels. Labels that the API does not allow match nothing.
    pub fn from_labels(labels: &BTreeMap<String, String>) -> Self {
        let terms = labels.iter().map(|(key, value)| one_of(key, [value.as_str()], ""));
        terms.collect::<Result<_, _>>().map_or_else(|_| Self::nothing(), Self::from_requirements)
    }

    /// Converts a `LabelSelector` as the API server does: `None` matches nothing, an empty one everything.
    pub fn from_label_selector(selector: Option<&LabelSelector>) -> Result<Self, SelectorError> {
        let Some(selector) = selector else { return Ok(Self::nothing()) };
        let labels = selector.match_labels.iter().flatten();
        let labels = labels.map(|(key, value)| one_of(key, [value.as_str()], ""));
        let expressions = selector.match_expressions.iter().flatten().map(convert_expression);
        labels.chain(expressions).collect::<Result<_, _>>().map(Self::from_requirements)
    }

    /// Parses the text form of a selector, as in `status.selector` of a scale.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        if text.trim().is_empty() {
            return Ok(Self::everything());
        }
        let (mut terms, mut start, mut inside) = (Vec::new(), 0, false);
        for (at, sign) in text.char_indices() {
            match sign {
                '(' if !inside => inside = true,
                ')' if inside => inside = false,
                '(' | ')' => return Err(SelectorError::Brackets(text.to_owned())),
                ',' if !inside => {
                    terms.push(parse_requirement(&text[start..at])?);
                    start = at + 1;
                }
                _ => {}
            }
        }
        if inside {
            return Err(SelectorError::Brackets(text.to_owned()));
        }
        terms.push(parse_requirement(&text[start..])?);
        Ok(Self::from_requirements(terms))
    }

    /// Each term is the key of a requirement and its canonical text.
    fn from_requirements(mut terms: Vec<(String, String)>) -> Self {
        terms.sort_unstable();
        terms.dedup();
        let texts: Vec<_> = terms.into_iter().map(|(_, text)| text).collect();
        Self(texts.join(",").into())
    }

    /// From text that [`Self::as_str`] returned.
    pub(crate) fn from_canonical(text: &str) -> Self {
        Self(text.into())
    }

    /// Whether the selector matches an object with these labels. `!=` and `notin` also match objects without the label, as
    /// in the API.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.matches_with(|key| labels.get(key))
    }

    /// Like [`Self::matches`], for labels that are stored in another type.
    pub fn matches_with<'a>(&self, value: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements().all(|term| term.matches(value(term.key)))
    }

    /// The labels that every matching object has, for a lookup in an index. Empty if the selector matches nothing or
    /// requires no exact value.
    pub fn required_labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.requirements().filter_map(|term| match term.operator {
            Operator::In(values) if !values.contains(',') => Some((term.key, values)),
            _ => None,
        })
    }

    /// The keys of the labels that decide whether it matches.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.requirements().map(|term| term.key)
    }

    /// Whether this is the selector that matches nothing. False for one whose requirements contradict each other.
    pub fn is_nothing(&self) -> bool {
        &*self.0 == NOTHING
    }

    /// The canonical text, as an API request takes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn requirements(&self) -> impl Iterator<Item = Requirement<'_>> {
        let mut rest: &str = &self.0;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let end = match rest.find([',', '(']) {
                Some(at) if rest[at..].starts_with('(') => rest.find(')').map(|close| close + 1),
                other => other,
            };
            let (term, after) = rest.split_at(end.unwrap_or(rest.len()));
            rest = after.strip_prefix(',').unwrap_or(after);
            Some(Requirement::parse_canonical(term))
        })
    }
}

/// Matches no pod.
impl Default for Selector {
    fn default() -> Self {
        Self::nothing()
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Selector({})", self.0)
    }
}

impl<'a> Requirement<'a> {
    fn parse_canonical(canonical: &'a str) -> Self {
        if let Some(key) = canonical.strip_prefix('!') {
            return Self { key, operator: Operator::DoesNotExist };
        }
        if let Some((head, values)) = canonical.split_once(" (") {
            let values = values.trim_end_matches(')');
            return match head.split_once(' ') {
                Some((key, "notin")) => Self { key, operator: Operator::NotIn(values) },
                Some((key, _)) => Self { key, operator: Operator::In(values) },
                None => Self { key: head, operator: Operator::In(values) },
            };
        }
        let Some(at) = canonical.find(['=', '!', '>', '<']) else {
            return Self { key: canonical, operator: Operator::Exists };
        };
        let (key, rest) = canonical.split_at(at);
        let operator = match rest.split_at(1) {
            ("=", value) => Operator::In(value),
            (">", bound) => bound.parse().map_or(Operator::In(bound), Operator::GreaterThan),
            ("<", bound) => bound.parse().map_or(Operator::In(bound), Operator::LessThan),
            (_, value) => Operator::NotIn(value.trim_start_matches('=')),
        };
        Self { key, operator }
    }

    fn matches(&self, value: Option<&str>) -> bool {
        let is_one_of = |values: &str, value| values.split(',').any(|candidate| candidate == value);
        let integer = || value.and_then(|value| value.parse::<i64>().ok());
        match self.operator {
            Operator::DoesNotExist => value.is_none(),
            Operator::Exists => value.is_some(),
            Operator::In(values) => value.is_some_and(|value| is_one_of(values, value)),
            Operator::NotIn(values) => value.is_none_or(|value| !is_one_of(values, value)),
            Operator::GreaterThan(bound) => integer().is_some_and(|value| value > bound),
            Operator::LessThan(bound) => integer().is_some_and(|value| value < bound),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{labels::tests::labels, *};

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn a_selector_matches_as_the_api_server_does() {
        for (text, canonical, matching, other) in [
            ("app=web", "app=web", &[("app", "web"), ("x", "y")][..], &[("app", "web2")][..]),
            ("app==web", "app=web", &[("app", "web")], &[("ap", "web")]),
            (" app = web ", "app=web", &[("app", "web")], &[]),
            ("app=", "app=", &[("app", "")], &[("app", "web")]),
            ("app!=web", "app!=web", &[], &[("app", "web")]),
            ("app != web", "app!=web", &[("app", "db")], &[("app", "web")]),
            ("app in (web, db,web)", "app in (db,web)", &[("app", "db")], &[("app", "d")]),
            ("app in(web)", "app=web", &[("app", "web")], &[("app", "")]),
            ("app in (,web)", "app in (,web)", &[("app", "")], &[]),
            ("app in ()", "app=", &[("app", "")], &[]),
            ("in in (in,notin)", "in in (in,notin)", &[("in", "notin")], &[("in", "i")]),
            ("app notin (web,db)", "app notin (db,web)", &[], &[("app", "db")]),
            ("app notin (web)", "app!=web", &[("app", "db")], &[("app", "web")]),
            ("app", "app", &[("app", "")], &[("apps", "")]),
            ("!app", "!app", &[("apps", "")], &[("app", "")]),
            ("! app", "!app", &[], &[("app", "")]),
            ("size>3", "size>3", &[("size", "4")], &[("size", "3")]),
            ("size < 3", "size<3", &[("size", "-1")], &[("size", "small")]),
            ("a=b,!c,d in (e,f)", "a=b,!c,d in (e,f)", &[("a", "b"), ("d", "f")], &[("a", "b")]),
            ("d in (e,f),a=b", "a=b,d in (e,f)", &[("a", "b"), ("d", "e")], &[("d", "e")]),
            ("a=b,a=b", "a=b", &[("a", "b")], &[]),
            ("x.io/a=b", "x.io/a=b", &[("x.io/a", "b")], &[("a", "b")]),
            ("", "", &[], &[]),
        ] {
            let selector = Selector::parse(text).unwrap_or_else(|why| panic!("{text:?}: {why}"));
            assert_eq!(selector.to_string(), canonical, "{text:?}");
            assert!(selector.matches(&labels(matching)), "{text:?} on {matching:?}");
            assert!(text.is_empty() || !selector.matches(&labels(other)), "{text:?} on {other:?}");
        }
    }

    #[test]
    fn an_invalid_selector_is_rejected() {
        for text in [
            ",",
            "a=b,",
            ",a=b",
            "a b",
            "a=b c",
            "a in b",
            "a in (b",
            "a in b)",
            "a within (b)",
            "a in in (b)",
            "(a)",
            "=b",
            "!",
            "!=b",
            "a=!b",
            "a===b",
            "a!b",
            "a>b",
            "a>",
            "-a=b",
            "a=b-",
            "a/b/c",
            "A.io/b",
            "/b",
            "a/",
            "a in ((b))",
            "a in (b))",
            "a.-b/c",
            "a=(b)",
            "é=b",
            "a=é",
        ] {
            let parsed = Selector::parse(text);
            assert!(parsed.is_err(), "{text:?} is parsed as {parsed:?}");
        }
        assert!(Selector::parse(&format!("a={}", "b".repeat(63))).is_ok());
        assert!(Selector::parse(&format!("a={}", "b".repeat(64))).is_err());
    }

    #[test]
    fn label_selectors_are_converted_with_their_expressions() {
        let of = |yaml: &str| -> Result<Selector, SelectorError> {
            let selector: LabelSelector = serde_saphyr::from_str(yaml).expect("a selector");
            Selector::from_label_selector(Some(&selector))
        };
        assert_eq!(Selector::from_label_selector(None), Ok(Selector::nothing()));
        assert_eq!(of("{}"), Ok(Selector::everything()));
        let both = of("
matchLabels: {app: web}
matchExpressions:
- {key: tier, operator: In, values: [b, a]}
- {key: track, operator: NotIn, values: [canary]}
- {key: zone, operator: Exists}
- {key: off, operator: DoesNotExist}
");
        assert_eq!(
            both.map(|selector| selector.to_string()).as_deref(),
            Ok("app=web,!off,tier in (a,b),track!=canary,zone")
        );
        for (odd, why) in [
            ("{key: a, operator: In}", "operator In on a has 0 values"),
            ("{key: a, operator: Exists, values: [b]}", "operator Exists on a has 1 values"),
            ("{key: a, operator: Near, values: [b]}", "\"Near\" is not a label selector operator"),
            ("{key: a b, operator: Exists}", "\"a b\" is not a label key"),
            ("{key: a, operator: In, values: ['b,c']}", "\"b,c\" is not a label value for a"),
        ] {
            let error = of(&format!("matchExpressions: [{odd}]")).expect_err(odd).to_string();
            assert!(error.starts_with(why), "{error}");
        }
    }

    #[test]
    fn nothing_matches_nothing_and_everything_matches_everything() {
        let pod = labels(&[("app", "web"), ("plimsoll.dev/nothing", "x")]);
        assert!(!Selector::nothing().matches(&pod) && !Selector::nothing().matches(&labels(&[])));
        assert!(Selector::everything().matches(&pod) && !Selector::everything().is_nothing());
        assert_eq!(Selector::from_labels(&map(&[])), Selector::everything());
        assert!(Selector::from_labels(&map(&[("a", "b,c")])).is_nothing());
    }

    fn value() -> impl Strategy<Value = String> {
        prop_oneof![Just(String::new()), "[a-c0-3]", "[a-c]-[a-c]"]
    }

    fn term() -> impl Strategy<Value = String> {
        let key = || prop_oneof!["[a-d]", Just("x.io/a".to_owned())];
        let list = || proptest::collection::vec(value(), 1..4).prop_map(|values| values.join(", "));
        prop_oneof![
            (key(), value()).prop_map(|(key, value)| format!("{key} ={value}")),
            (key(), value()).prop_map(|(key, value)| format!("{key}!= {value}")),
            (key(), list()).prop_map(|(key, list)| format!("{key} in ({list})")),
            (key(), list()).prop_map(|(key, list)| format!("{key} notin ({list})")),
            (key(), -3..4_i64).prop_map(|(key, bound)| format!("{key}>{bound}")),
            (key(), -3..4_i64).prop_map(|(key, bound)| format!("{key}<{bound}")),
            key(),
            key().prop_map(|key| format!("!{key}")),
        ]
    }

    proptest! {
        #[test]
        fn a_printed_selector_parses_to_the_same_selector(
            terms in proptest::collection::vec(term(), 0..5),
            pod in proptest::collection::btree_map("[a-d]", value(), 0..4),
        ) {
            let selector = Selector::parse(&terms.join(" , ")).expect("a selector");
            let again = Selector::parse(&selector.to_string()).expect("canonical text");
            prop_assert_eq!(&again, &selector);
            // Every requirement must hold, so their order does not matter.
            let pod = Labels::from(pod);
            let alone = terms.iter().all(|requirement| Selector::parse(requirement).expect("a requirement").matches(&pod));
            prop_assert_eq!(selector.matches(&pod), alone);
            if selector.matches(&pod) {
                for (key, value) in selector.required_labels() {
                    prop_assert_eq!(pod.get(key), Some(value));
                }
            }
        }

        #[test]
        fn any_text_is_parsed_or_rejected_without_a_panic(text in "[ab=!,() <>notin]{0,16}") {
            if let Ok(selector) = Selector::parse(&text) {
                prop_assert_eq!(Selector::parse(selector.as_str()), Ok(selector));
            }
        }
    }
}
