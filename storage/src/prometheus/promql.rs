//! Queries: built from functions over selectors, or written by users, with additional matchers in each selector.

mod check;
mod selector_scan;

use std::{fmt, time::Duration};

pub use self::selector_scan::InvalidQuery;
use super::{
    schema::Dialect,
    selector::{LabelMatcher, LabelMatchers, Selector, is_label, quoted},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Query {
    text: String,
    /// Whether it is a plain selector, so that samples have their own timestamps.
    is_selector: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum RangeFunction {
    /// Per-second increase of a counter. Needs two samples, which a window of one interval does not contain on release 3.
    Rate,
    /// Per-second increase of a counter between its last two samples, as a metrics server computes it. A longer window only
    /// extends how long the value is returned after the last sample.
    #[strum(serialize = "irate")]
    InstantRate,
    Increase,
    #[strum(serialize = "max_over_time")]
    Max,
    #[strum(serialize = "min_over_time")]
    Min,
    #[strum(serialize = "count_over_time")]
    Count,
    #[strum(serialize = "last_over_time")]
    Last,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Aggregation {
    Sum,
    Max,
    Count,
    /// The constant 1 for each group.
    Group,
}

impl Query {
    /// Applies a function to a window of these series.
    ///
    /// Windows include both ends on release 2 (`[10m]` with an interval of one minute contains up to eleven samples) and are
    /// open on the left since release 3 (ten).
    pub fn range_function(function: RangeFunction, selector: &Selector, window: Duration) -> Self {
        Self::built(format!("{function}({selector}[{}])", format_duration(window)))
    }

    /// The raw samples of a window, for instant queries. The result is a matrix with the timestamps of the samples.
    pub fn range_samples(selector: &Selector, window: Duration) -> Self {
        Self::built(format!("{selector}[{}]", format_duration(window)))
    }

    /// For a plain selector, the last sample of each series within this window. Other queries are unchanged. This turns a
    /// user's instant query into one about everything that existed in the window.
    #[must_use]
    pub fn last_within(&self, window: Duration) -> Self {
        if !self.is_selector {
            return self.clone();
        }
        let (text, window) = (self.closed_text(), format_duration(window));
        Self::built(format!("last_over_time({text}[{window}])"))
    }

    /// Aggregates series by these labels, and drops all others.
    #[must_use]
    pub fn aggregate(&self, aggregation: Aggregation, by: &[&str]) -> Self {
        Self::built(format!("{aggregation} by ({}) ({})", list(by), self.text))
    }

    /// The series with the largest values, this many for each combination of these labels. They keep all their labels, so
    /// they can serve as examples.
    #[must_use]
    pub fn topk(&self, count: u32, by: &[&str]) -> Self {
        Self::built(format!("topk by ({}) ({count}, {})", list(by), self.text))
    }

    /// The series of this query that match a series of the other query on these labels.
    #[must_use]
    pub fn and_on(&self, other: &Self, on: &[&str]) -> Self {
        Self::built(format!("({}) and on ({}) ({})", self.text, list(on), other.text))
    }

    /// The sums of series of both queries with the same labels.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self::built(format!("({}) + ({})", self.text, other.text))
    }

    /// The series of this query, and those of the other one with other labels.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        Self::built(format!("({}) or ({})", self.text, other.text))
    }

    /// Rounds amounts of CPU to nanocores, the unit in which a metrics server reports them. Without this, each value of a
    /// response has the seventeen digits of a float, which hardly compress.
    #[must_use]
    pub fn round_to_nanocores(&self) -> Self {
        // A division by 1e9 is exact to the last digit that is printed. The second argument of round() is not.
        Self::built(format!("round(({}) * 1e9) / 1e9", self.text))
    }

    /// Keeps series whose values satisfy a comparison, such as `> 0`.
    #[must_use]
    pub fn only(&self, comparison: &str) -> Self {
        Self::built(format!("({}) {comparison}", self.text))
    }

    /// The timestamp of each sample in seconds: its own for a selector, the evaluation time for anything else.
    #[must_use]
    pub fn timestamps(&self) -> Self {
        Self::built(format!("timestamp({})", self.closed_text()))
    }

    /// The text, to be followed by more: a comment ends only at the end of its line.
    fn closed_text(&self) -> String {
        let end = if self.text.contains('#') { "\n" } else { "" };
        format!("{}{end}", self.text)
    }

    /// A user's query with these matchers in each of its selectors. It is parsed only as far as needed for that, so that
    /// other dialects work too.
    pub fn from_user(text: &str, matchers: &LabelMatchers) -> Result<Self, InvalidQuery> {
        let scanned = selector_scan::scan(text)?;
        let text = if matchers.is_empty() {
            text.trim().to_owned()
        } else {
            scanned.with(text, &matchers.to_string()).trim().to_owned()
        };
        Ok(Self { text, is_selector: scanned.is_selector })
    }

    /// A query of a user who may only read the series of a tenant: each selector gets the tenant's matcher in addition to
    /// the client's. Stricter than [`Self::from_user`], because the matcher is a security boundary: the query must be plain
    /// PromQL, and a parser must find the matcher in each selector of the text that is sent.
    ///
    /// A user's own matcher for that label is rejected unless it is the same. With both, the server would return only a part
    /// of the series, and a sum over a part looks like a valid value.
    pub fn from_tenant(
        text: &str,
        matchers: &LabelMatchers,
        tenant: &LabelMatcher,
    ) -> Result<Self, InvalidQuery> {
        let invalid = |why: &str, at| Err(InvalidQuery::at_byte(text, why, at));
        let scanned = selector_scan::scan(text)?;
        let sent = scanned.with(text, &matchers.with(tenant.clone()).to_string());
        let (Some(_), Some(selectors)) =
            (check::parse(text, &scanned)?, check::parse(&sent, &selector_scan::scan(&sent)?)?)
        else {
            return invalid("it is not plain PromQL, so its selectors cannot be checked", 0);
        };
        if selectors.calls_info {
            return invalid("info() reads series that no selector names", 0);
        }
        if selectors.found.len() != scanned.positions().count() {
            return invalid("the positions of its selectors are ambiguous", 0);
        }
        for (selector, at) in selectors.found.iter().zip(scanned.positions()) {
            let read = selector.matchers.matchers.iter().map(check::label_matcher);
            let of_label: Vec<_> = read.filter(|matcher| matcher.label == tenant.label).collect();
            if let Some(own) = of_label.iter().find(|own| *own != tenant) {
                let why = format!("it selects {own}, but only series with {tenant} may be read");
                return invalid(&why, at);
            }
            if of_label.is_empty() || !selector.matchers.or_matchers.is_empty() {
                return invalid("a matcher cannot be added to this selector", at);
            }
        }
        Ok(Self { text: sent.trim().to_owned(), is_selector: scanned.is_selector })
    }

    /// Whether a text is a valid query and each of its selectors has a matcher for this label.
    pub fn every_selector_has_label(text: &str, label: &str) -> bool {
        let Ok(scanned) = selector_scan::scan(text) else { return false };
        let Ok(Some(selectors)) = check::parse(text, &scanned) else { return false };
        let mut found = selectors.found.iter();
        found.all(|selector| selector.matchers.matchers.iter().any(|own| own.name == label))
    }

    /// Checks that a user's query is valid and returns numbers. Rejects what is invalid on every server, and accepts what
    /// only some servers support. With MetricsQL most extensions pass.
    pub fn validate(text: &str, dialect: Dialect) -> Result<(), InvalidQuery> {
        let scanned = selector_scan::scan(text)?;
        if dialect == Dialect::MetricsQl {
            return Ok(());
        }
        check::parse(text, &scanned).map(drop)
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn is_selector(&self) -> bool {
        self.is_selector
    }

    fn built(text: String) -> Self {
        Self { text, is_selector: false }
    }
}

impl From<Selector> for Query {
    fn from(selector: Selector) -> Self {
        Self { text: selector.to_string(), is_selector: true }
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Label names, separated by commas.
fn list(labels: &[&str]) -> String {
    let quoted = |label: &&str| {
        if is_label(label) { (*label).to_owned() } else { quoted(label) }
    };
    labels.iter().map(quoted).collect::<Vec<_>>().join(",")
}

/// A PromQL duration, to the millisecond. Never zero, which PromQL rejects.
pub fn format_duration(duration: Duration) -> String {
    let millis = duration.as_millis().max(1);
    for (unit, length) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)] {
        if millis.is_multiple_of(length) {
            return format!("{}{unit}", millis / length);
        }
    }
    format!("{millis}ms")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prometheus::selector::MatchOperator;

    #[test]
    fn queries_are_built_from_functions() {
        let selector = Selector::metric("x").equals("a", "b");
        let (minutes, hours) = (Duration::from_mins, Duration::from_hours);
        let rate = Query::range_function(RangeFunction::Rate, &selector, minutes(2));
        assert_eq!(rate.as_str(), r#"rate(x{a="b"}[2m])"#);
        let by = rate.aggregate(Aggregation::Max, &["pod", "my.label"]);
        assert_eq!(by.as_str(), r#"max by (pod,"my.label") (rate(x{a="b"}[2m]))"#);
        let last = Query::from(selector).last_within(hours(192));
        assert_eq!(last.as_str(), r#"last_over_time(x{a="b"}[8d])"#);
        let noted = Query::from_user("up # note", &LabelMatchers::default()).expect("a query");
        assert_eq!(noted.last_within(hours(24)).as_str(), "last_over_time(up # note\n[1d])");
        assert_eq!(rate.last_within(hours(1)), rate);
        let nanocores = rate.round_to_nanocores();
        assert_eq!(nanocores.as_str(), r#"round((rate(x{a="b"}[2m])) * 1e9) / 1e9"#);
    }

    #[test]
    fn every_selector_of_a_tenants_query_is_restricted_to_its_namespace() {
        let tenant = LabelMatcher::new("namespace", MatchOperator::Equals, "shop");
        let cluster: LabelMatchers = ["cluster=\"qa\"".parse().expect("one")].into_iter().collect();
        let of = |text: &str| Query::from_tenant(text, &LabelMatchers::default(), &tenant);
        for (text, confined) in [
            ("up", r#"up{namespace="shop"}"#),
            (r"up{namespace='shop'}", r#"up{namespace="shop",namespace='shop'}"#),
            (
                "topk(scalar(a), b) > holt_winters(c[1h], 0.5, 0.5)",
                r#"topk(scalar(a{namespace="shop"}), b{namespace="shop"}) > holt_winters(c{namespace="shop"}[1h], 0.5, 0.5)"#,
            ),
        ] {
            assert_eq!(of(text).expect(text).as_str(), confined);
        }
        let both = Query::from_tenant("up", &cluster, &tenant).expect("a query");
        assert_eq!(both.as_str(), r#"up{cluster="qa",namespace="shop"}"#);
        for (text, expected) in [
            (
                r#"up{namespace="other"}"#,
                r#"only series with namespace="shop" may be read, at character 4"#,
            ),
            (r#"up{namespace!="shop"}"#, r#"it selects namespace!="shop""#),
            (r#"up + b{"namespace"=~"shop|other"}"#, "it selects namespace=~"),
            (r#"up{namespace!=""}"#, "it selects namespace!="),
            (r#"up{a="\q"}"#, "unknown escape sequence"),
            ("info(up)", "info() reads series that no selector names"),
            ("up[5m]", "the result is a range vector"),
            ("median by (a) (up)", "syntax error"),
            ("median_over_time(up[5m])", "not plain PromQL"),
            ("up offset 1e400", "not plain PromQL"),
            (r#"topk(scalar(up{namespace="other"}), up)"#, "it selects namespace="),
            (r#"WITH (x = {namespace="other"}) up{x}"#, "unknown operator"),
            ("vector(0) #\r + up", "a carriage return"),
            (r#"up{or namespace="other"}"#, "alternatives within braces"),
        ] {
            let error = of(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(of("up # namespace=\"other\"").is_ok());
    }

    #[test]
    fn durations_are_printed_in_their_largest_unit() {
        for (millis, text) in
            [(0, "1ms"), (1500, "1500ms"), (90_000, "90s"), (3_600_000, "1h"), (691_200_000, "8d")]
        {
            assert_eq!(format_duration(Duration::from_millis(millis)), text);
        }
    }
}
