//! Owns what panels ask: queries in which `@` stands for the selectors that every query has.

/// Whether a target asks for one moment or for the whole time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Now,
    Range,
}

/// One query of a panel.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub expression: String,
    pub legend: String,
    pub shape: Shape,
}

/// What `@` and what may follow it stand for; longer ones first, for they begin alike.
///
/// `job` and `instance` narrow down which processes tell. Series of single objects come from whichever replica leads, and
/// from all replicas of the recommender, which are warm. So a query takes the `max by` what the object is, which glues
/// the series of replicas that took turns, and the variables stand at All unless somebody wants to see one replica alone.
const SELECTORS: [(&str, &str); 5] = [
    ("@of_vpa", r#"@, vpa_namespace=~"$namespace", vpa_name=~"$name""#),
    ("@of_wpa", r#"@, wpa_namespace=~"$namespace", wpa_name=~"$name""#),
    ("@vpa", r#"@, kind="vpa", namespace=~"$namespace", name=~"$name""#),
    ("@wpa", r#"@, kind="wpa", namespace=~"$namespace", name=~"$name""#),
    ("@", r#"cluster=~"$cluster", job=~"$job", instance=~"$instance""#),
];

/// A query with all selectors written out, on one line.
pub(super) fn query(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    SELECTORS.iter().fold(line, |text, (short, long)| text.replace(short, long))
}

/// How often something happened from one point to the next. `increase` would count it anew at each point within the
/// interval that it looks back over, and round up what it cannot see at the ends.
pub(super) fn events(counter: &str, by: &str) -> String {
    let by = if by.is_empty() { String::new() } else { format!("by ({by}) ") };
    format!("sum {by}(rate({counter}[$__rate_interval])) * $__interval_ms / 1000")
}

/// The rate of what every replica sees for itself, counted once: those that stand by are as warm as the leader. `of` is
/// what tells one thing from another, `by` what it is added up by.
pub(super) fn once(counter: &str, of: &str, by: &str) -> String {
    format!("sum by ({by}) (max by (cluster, {of}) (rate({counter}[$__rate_interval])))")
}

/// How often something happened from one point to the next that every replica sees for itself.
pub(super) fn events_once(counter: &str, of: &str, by: &str) -> String {
    format!("{} * $__interval_ms / 1000", once(counter, of, by))
}

/// Asks for a line over time.
pub(super) fn over_time(text: &str, legend: &str) -> Target {
    Target { expression: query(text), legend: legend.to_owned(), shape: Shape::Range }
}

/// Asks for what is now.
pub(super) fn now(text: &str, legend: &str) -> Target {
    Target { shape: Shape::Now, ..over_time(text, legend) }
}

/// A column of a table.
pub(super) fn column(text: &str) -> Target {
    now(text, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_written_out() {
        assert_eq!(
            query("max by (name) (\n    plimsoll_target{@vpa, resource=\"cpu\"}\n)"),
            "max by (name) ( plimsoll_target{cluster=~\"$cluster\", job=~\"$job\", \
             instance=~\"$instance\", kind=\"vpa\", namespace=~\"$namespace\", name=~\"$name\", \
             resource=\"cpu\"} )"
        );
        assert!(!query("a{@of_vpa} / b{@of_wpa} / c{@wpa} / d{@}").contains('@'));
    }
}
