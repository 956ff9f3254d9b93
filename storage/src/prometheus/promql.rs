//! Queries: functions over selectors, and those that users write, with the matchers of the client in each selector.

mod check;
mod selector_scan;

use std::{fmt, fmt::Write as _, time::Duration};

pub use self::selector_scan::InvalidQuery;
use super::{
    schema::Dialect,
    selector::{LabelMatcher, LabelMatchers, Selector, is_label, quoted},
};

/// A query in PromQL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Query {
    text: String,
    /// Whether it is one selector and nothing else: then each sample has a time of its own.
    is_selector: bool,
}

/// A function over the samples of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeFunction {
    /// Increase of a counter by second. Needs two samples: no window of one interval has them on release 3.
    Rate,
    /// Increase of a counter by second, between its last two samples: what a metrics server would have said. A longer
    /// window changes nothing but how long it is said after the last sample.
    InstantRate,
    /// Increase of a counter.
    Increase,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// The mean.
    Average,
    /// The sum.
    Sum,
    /// How many.
    Count,
    /// The last one.
    Last,
    /// How often it changed.
    Changes,
    /// How often a counter began anew.
    Resets,
}

/// One series out of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregation {
    /// Their sum.
    Sum,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// How many.
    Count,
    /// 1: which ones there are.
    Group,
}

/// What is folded into one.
#[derive(Clone, Copy, Debug)]
pub enum Grouping<'a> {
    /// Series that have these labels in common. Only these stay.
    By(&'a [&'a str]),
    /// Series that differ in these labels only. All others stay.
    Without(&'a [&'a str]),
}

impl Query {
    /// A function over a window of these series.
    ///
    /// Windows have both edges on release 2 (`[10m]` over series of a minute holds eleven samples where the edges
    /// meet them) and are open on the left from release 3 on (ten).
    pub fn range_function(function: RangeFunction, selector: &Selector, window: Duration) -> Self {
        Self::built(format!("{}({selector}[{}])", function.name(), format_duration(window)))
    }

    /// The samples themselves within a window, for instant queries: a matrix, with the samples' own times.
    pub fn range_samples(selector: &Selector, window: Duration) -> Self {
        Self::built(format!("{selector}[{}]", format_duration(window)))
    }

    /// A function over a window of what this query answers, asked each `step` of it.
    #[must_use]
    pub fn subquery(&self, function: RangeFunction, window: Duration, step: Duration) -> Self {
        let (window, step) = (format_duration(window), format_duration(step));
        Self::built(format!("{}({}[{window}:{step}])", function.name(), self.as_operand()))
    }

    /// The last sample of each series within this window, of a query that is one selector; all others as they are.
    /// What a user wrote for an instant becomes an answer about everything that was there meanwhile.
    #[must_use]
    pub fn last_within(&self, window: Duration) -> Self {
        if self.is_selector {
            // What is behind a sign of a comment ends with its line.
            let end = if self.text.contains('#') { "\n" } else { "" };
            let window = format_duration(window);
            return Self::built(format!("last_over_time({}{end}[{window}])", self.text));
        }
        self.clone()
    }

    /// Folds series.
    #[must_use]
    pub fn aggregate(&self, fold: Aggregation, along: Grouping<'_>) -> Self {
        let (word, labels) = match along {
            Grouping::By(labels) => ("by", labels),
            Grouping::Without(labels) => ("without", labels),
        };
        Self::built(format!("{} {word} ({}) ({})", fold.name(), list(labels), self.text))
    }

    /// The series with the largest values, so many for each combination of these labels: with all their labels, so that
    /// a few show what all look like.
    #[must_use]
    pub fn topk(&self, count: u32, by: &[&str]) -> Self {
        Self::built(format!("topk by ({}) ({count}, {})", list(by), self.text))
    }

    /// Those series of this query that the other one has too, as far as these labels tell.
    #[must_use]
    pub fn and_on(&self, other: &Self, on: &[&str]) -> Self {
        Self::built(format!("({}) and on ({}) ({})", self.text, list(on), other.text))
    }

    /// Only where the value is this one.
    #[must_use]
    pub fn equal_to(&self, value: u32) -> Self {
        Self::built(format!("({}) == {value}", self.text))
    }

    /// Only where the value is larger than this one.
    #[must_use]
    pub fn greater_than(&self, value: u32) -> Self {
        Self::built(format!("({}) > {value}", self.text))
    }

    /// When each sample was taken, in seconds: of a selector its own time, of anything else the time of the query.
    #[must_use]
    pub fn timestamps(&self) -> Self {
        // What is behind a sign of a comment ends with its line.
        let end = if self.text.contains('#') { "\n" } else { "" };
        Self::built(format!("timestamp({}{end})", self.text))
    }

    /// What a user wrote, with these matchers in each of its selectors. It is taken apart no further than that takes,
    /// so that dialects pass too.
    pub fn from_user(text: &str, matchers: &LabelMatchers) -> Result<Self, InvalidQuery> {
        let scanned = selector_scan::scan(text)?;
        let text = if matchers.is_empty() {
            text.trim().to_owned()
        } else {
            scanned.with(text, &matchers.to_string()).trim().to_owned()
        };
        Ok(Self { text, is_selector: scanned.is_selector })
    }

    /// What a user wrote who may only read the series of a tenant: each selector gets the matcher that tells them, beside
    /// those of the client. Stricter than [`Self::of_user`], since the matcher is a boundary: the text has to be plain
    /// PromQL in which two readers find the same selectors.
    ///
    /// A matcher of the user's own for that label is refused unless it is the same. With both of them the server would find
    /// a part of the series that are asked for, or none, and a sum over a part looks like a value.
    pub fn from_tenant(
        text: &str,
        matchers: &LabelMatchers,
        tenant: &LabelMatcher,
    ) -> Result<Self, InvalidQuery> {
        let scanned = selector_scan::scan(text)?;
        let found = check::selectors(text)
            .map_err(|flaw| InvalidQuery::at_byte(text, flaw.why, flaw.at))?;
        if !scanned.positions().eq(found.iter().map(|selector| selector.at)) {
            return Err(InvalidQuery::at_byte(
                text,
                "it cannot be told for certain where its selectors are",
                0,
            ));
        }
        for (written, at) in found.iter().flat_map(|selector| &selector.matchers) {
            let own = LabelMatcher::written(written)
                .map_err(|wrong| InvalidQuery::at_byte(text, wrong.why, *at))?;
            if own.label() == tenant.label() && own != *tenant {
                let why = format!("it asks for {own}, and only series with {tenant} may be read");
                return Err(InvalidQuery::at_byte(text, why, *at));
            }
        }
        let text = scanned.with(text, &matchers.with(tenant.clone()).to_string());
        Ok(Self { text: text.trim().to_owned(), is_selector: scanned.is_selector })
    }

    /// Whether a text is a query, and each of its selectors has a matcher for this label.
    pub fn every_selector_has_label(text: &str, label: &str) -> bool {
        let asks = |selector: &check::FoundSelector<'_>| {
            let mut matchers = selector.matchers.iter();
            matchers
                .any(|(text, _)| LabelMatcher::written(text).is_ok_and(|it| it.label() == label))
        };
        check::selectors(text).is_ok_and(|found| found.iter().all(asks))
    }

    /// Whether a text that a user wrote can be a query whose answer is numbers. What is wrong everywhere is refused;
    /// what only some servers know passes, and so does most of what MetricsQL adds, where that is spoken.
    pub fn validate(text: &str, dialect: Dialect) -> Result<(), InvalidQuery> {
        selector_scan::scan(text)?;
        if dialect == Dialect::MetricsQl {
            return Ok(());
        }
        check::check(text).map_err(|flaw| InvalidQuery::at_byte(text, flaw.why, flaw.at))
    }

    /// The PromQL.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is one selector and nothing else.
    pub fn is_selector(&self) -> bool {
        self.is_selector
    }

    fn built(text: String) -> Self {
        Self { text, is_selector: false }
    }

    /// As something that a window can be put behind.
    fn as_operand(&self) -> String {
        if self.text.ends_with(')') && self.text.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return self.text.clone();
        }
        format!("({})", self.text)
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

impl RangeFunction {
    fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::InstantRate => "irate",
            Self::Increase => "increase",
            Self::Max => "max_over_time",
            Self::Min => "min_over_time",
            Self::Average => "avg_over_time",
            Self::Sum => "sum_over_time",
            Self::Count => "count_over_time",
            Self::Last => "last_over_time",
            Self::Changes => "changes",
            Self::Resets => "resets",
        }
    }
}

impl Aggregation {
    fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Max => "max",
            Self::Min => "min",
            Self::Count => "count",
            Self::Group => "group",
        }
    }
}

/// Names of labels, as a grouping has them.
fn list(labels: &[&str]) -> String {
    let mut list = String::new();
    for (at, label) in labels.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let label = if is_label(label) { (*label).to_owned() } else { quoted(label) };
        // Writing to a string does not fail.
        let _ = write!(list, "{comma}{label}");
    }
    list
}

/// A duration as PromQL reads it, to the millisecond; never nothing, which PromQL refuses.
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
        let peak = rate.subquery(RangeFunction::Max, hours(1), minutes(1));
        assert_eq!(peak.as_str(), r#"max_over_time(rate(x{a="b"}[2m])[1h:1m])"#);
        let by = peak.aggregate(Aggregation::Max, Grouping::By(&["pod", "my.label"]));
        assert_eq!(
            by.as_str(),
            r#"max by (pod,"my.label") (max_over_time(rate(x{a="b"}[2m])[1h:1m]))"#
        );
        let without = Query::from(selector.clone())
            .aggregate(Aggregation::Max, Grouping::Without(&["replica"]));
        assert_eq!(without.as_str(), r#"max without (replica) (x{a="b"})"#);
        let last = Query::from(selector).last_within(hours(192));
        assert_eq!(last.as_str(), r#"last_over_time(x{a="b"}[8d])"#);
        let noted = Query::from_user("up # note", &LabelMatchers::default()).expect("a query");
        assert_eq!(noted.last_within(hours(24)).as_str(), "last_over_time(up # note\n[1d])");
        assert_eq!(rate.last_within(hours(1)), rate);
    }

    #[test]
    fn every_selector_of_a_tenants_query_reads_its_own_series_only() {
        let tenant = LabelMatcher::new("namespace", MatchOperator::Equals, "shop");
        let cluster: LabelMatchers = ["cluster=\"qa\"".parse().expect("one")].into_iter().collect();
        let of = |text: &str| Query::from_tenant(text, &LabelMatchers::default(), &tenant);
        for (text, confined) in [
            ("up", r#"up{namespace="shop"}"#),
            (r"up{namespace='shop'}", r#"up{namespace="shop",namespace='shop'}"#),
            (
                "sum(rate(a[5m])) / on (pod) (b or vector(0)) # all",
                r#"sum(rate(a{namespace="shop"}[5m])) / on (pod) (b{namespace="shop"} or vector(0)) # all"#,
            ),
            (
                "max_over_time(a{b=\"c\"}[1h:1m] offset 5m) > bool 1",
                r#"max_over_time(a{namespace="shop",b="c"}[1h:1m] offset 5m) > bool 1"#,
            ),
        ] {
            assert_eq!(of(text).expect(text).as_str(), confined);
        }
        let both = Query::from_tenant("up", &cluster, &tenant).expect("a query");
        assert_eq!(both.as_str(), r#"up{cluster="qa",namespace="shop"}"#);
        for (text, words) in [
            (
                r#"up{namespace="other"}"#,
                r#"only series with namespace="shop" may be read, at character 4"#,
            ),
            (r#"up{namespace!="shop"}"#, r#"it asks for namespace!="shop""#),
            (r#"up + b{"namespace"=~"shop|other"}"#, "it asks for namespace=~"),
            (r#"up{namespace!=""}"#, "it asks for namespace!="),
            (r#"up{a="\q"}"#, "not quoted well"),
            ("info(up)", "info() reads series that no selector names"),
            ("up[5m]", "it answers a range"),
            ("median by (a) (up)", "is missing"),
            (r#"WITH (x = {namespace="other"}) up{x}"#, "no operator is known"),
            ("vector(0) #\r + up", "a carriage return"),
            (r#"up{or namespace="other"}"#, "alternatives within braces"),
        ] {
            let told = of(text).expect_err(text).to_string();
            assert!(told.contains(words), "{text}: {told}");
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
