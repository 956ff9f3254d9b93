//! The query of a page: filters, order, page and time range. Values that mean nothing are as if they were not there.

use std::fmt::Write as _;

use percent_encoding::percent_decode_str;
use plimsoll_core::rightsizing::report::Level;

use super::router::{PathSegment, RouteError};

/// The longest text to search for.
const MAX_SEARCH: usize = 200;
/// The most parameters that are read.
const MAX_PARAMETERS: usize = 32;

/// The order of a list of workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Sort {
    /// The highest risk first, then what costs most too much.
    #[default]
    Risk,
    /// By namespace and name.
    Name,
    /// The largest difference of CPU first.
    Cpu,
    /// The largest difference of memory first.
    Memory,
    /// The largest saving first.
    Money,
}

/// The time range of a timeline.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::EnumIter,
)]
pub enum Span {
    #[default]
    #[strum(serialize = "24h")]
    Day,
    /// Seven days.
    #[strum(serialize = "7d")]
    Week,
    /// 30 days.
    #[strum(serialize = "30d")]
    Month,
}

impl Span {
    /// Its length in seconds.
    pub fn seconds(self) -> u64 {
        let days = match self {
            Self::Day => 1,
            Self::Week => 7,
            Self::Month => 30,
        };
        days * 86_400
    }
}

/// The query of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListQuery {
    /// Only this namespace; all if it is empty.
    pub namespace: String,
    /// Only what contains all these words.
    pub search: String,
    /// Only this risk and higher ones.
    pub risk: Level,
    /// Only workloads with or without a VPA.
    pub vpa: Option<bool>,
    /// The order.
    pub sort: Sort,
    /// The page, from 1.
    pub page: usize,
    /// The time range.
    pub span: Span,
    /// The label to sum by; none if it is empty.
    pub by: String,
}

impl Default for ListQuery {
    fn default() -> Self {
        Self {
            namespace: String::new(),
            search: String::new(),
            risk: Level::Unsaid,
            vpa: None,
            sort: Sort::default(),
            page: 1,
            span: Span::default(),
            by: String::new(),
        }
    }
}

impl ListQuery {
    /// Parses the part of a URL after `?`. Only bytes that are no text are an error.
    pub fn parse(text: &str) -> Result<Self, RouteError> {
        let mut query = Self::default();
        for pair in text.split('&').take(MAX_PARAMETERS) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = value.replace('+', " ");
            let value = percent_decode_str(&value).decode_utf8();
            let value = value.map_err(|_| RouteError::BadRequest)?;
            match name {
                "namespace" => query.namespace = value.chars().take(63).collect(),
                "q" => query.search = value.trim().chars().take(MAX_SEARCH).collect(),
                "risk" => query.risk = value.parse().unwrap_or(Level::Unsaid),
                "vpa" => {
                    query.vpa = match &*value {
                        "with" => Some(true),
                        "without" => Some(false),
                        _ => None,
                    };
                }
                "sort" => query.sort = value.parse().unwrap_or_default(),
                "page" => query.page = value.parse().unwrap_or(1).clamp(1, 1_000_000),
                // The longest name of a label, with its prefix.
                "by" => query.by = value.chars().take(317).collect(),
                "range" => query.span = value.parse().unwrap_or_default(),
                _ => {}
            }
        }
        Ok(query)
    }

    /// The query as a part of a URL, with `?`; empty if everything has its default.
    pub fn text(&self) -> String {
        let default = Self::default();
        let mut text = String::new();
        let mut add = |name: &str, value: &str| {
            let separator = if text.is_empty() { '?' } else { '&' };
            // Writing to a String cannot fail.
            let _ = write!(text, "{separator}{name}={}", PathSegment(value));
        };
        if !self.namespace.is_empty() {
            add("namespace", &self.namespace);
        }
        if !self.search.is_empty() {
            add("q", &self.search);
        }
        if self.risk != default.risk {
            add("risk", self.risk.into());
        }
        if let Some(vpa) = self.vpa {
            add("vpa", if vpa { "with" } else { "without" });
        }
        if self.sort != default.sort {
            add("sort", self.sort.into());
        }
        if self.page != default.page {
            add("page", &self.page.to_string());
        }
        if self.span != default.span {
            add("range", self.span.into());
        }
        if !self.by.is_empty() {
            add("by", &self.by);
        }
        text
    }

    /// The same query with another order, from the first page.
    #[must_use]
    pub fn sorted(&self, sort: Sort) -> Self {
        Self { sort, page: 1, ..self.clone() }
    }

    /// The words to search for, in lower case.
    pub fn words(&self) -> Vec<String> {
        self.search.to_lowercase().split_whitespace().map(ToOwned::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_query_is_parsed_and_written() {
        let text = "?namespace=shop&q=a%20b&risk=high&vpa=without&sort=money&page=3&range=7d&by=app.kubernetes.io%2Fname";
        let query = ListQuery::parse(&text[1..]).expect("text");
        assert_eq!(query.words(), ["a", "b"]);
        assert_eq!((query.sort, query.page, query.vpa), (Sort::Money, 3, Some(false)));
        assert_eq!(query.text(), text);
        assert_eq!(ListQuery::parse(""), Ok(ListQuery::default()));
        assert_eq!(ListQuery::default().text(), "");
    }

    #[test]
    fn values_without_meaning_are_ignored_and_odd_bytes_are_refused() {
        for text in ["page=-1", "page=x", "sort=%27", "risk=", "vpa=yes", "range=1000d", "&&=&x"] {
            assert_eq!(ListQuery::parse(text), Ok(ListQuery::default()), "{text}");
        }
        assert_eq!(ListQuery::parse("q=%ff"), Err(RouteError::BadRequest));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]
        #[test]
        fn any_query_survives_a_round_trip(text in "[ -~]{0,120}") {
            if let Ok(query) = ListQuery::parse(&text) {
                let written = query.text();
                prop_assert!(written.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"'".contains(&byte)));
                prop_assert_eq!(ListQuery::parse(written.trim_start_matches('?')), Ok(query));
            }
        }
    }
}
