//! The queries of panels, in which `@` is replaced with the selectors that every query has.

/// Whether a target is an instant or a range query.
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

/// The expansion of `@` and its suffixes; longer ones first, because they share a prefix.
///
/// `job` and `instance` select the processes. Series of single objects come from the leading replica, and from all
/// replicas of the recommender, which are warm. So a query takes the `max by` the object's labels, which merges the
/// series of replicas that led in turn. The variables are `All` unless the user selects one replica.
const SELECTORS: [(&str, &str); 6] = [
    ("@of_vpa", r#"@, vpa_namespace=~"$namespace", vpa_name=~"$name""#),
    ("@of_wpa", r#"@, wpa_namespace=~"$namespace", wpa_name=~"$name""#),
    ("@hpa", r#"@, kind="hpa", namespace=~"$namespace", name=~"$name""#),
    ("@vpa", r#"@, kind="vpa", namespace=~"$namespace", name=~"$name""#),
    ("@wpa", r#"@, kind="wpa", namespace=~"$namespace", name=~"$name""#),
    ("@", r#"cluster=~"$cluster", job=~"$job", instance=~"$instance""#),
];

/// A query with all selectors expanded, on one line.
pub(super) fn query(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    SELECTORS.iter().fold(line, |text, (short, long)| text.replace(short, long))
}

/// How many events happened between one point and the next. `increase` would count an event again at each point of
/// the interval that it looks back over, and it extrapolates at the ends.
pub(super) fn events(counter: &str, by: &str) -> String {
    let by = if by.is_empty() { String::new() } else { format!("by ({by}) ") };
    format!("sum {by}(rate({counter}[$__rate_interval])) * $__interval_ms / 1000")
}

/// The rate of events that every replica observes, counted once: standbys are as warm as the leader. `of` identifies
/// an event, `by` are the labels to sum by.
pub(super) fn once(counter: &str, of: &str, by: &str) -> String {
    format!("sum by ({by}) (max by (cluster, {of}) (rate({counter}[$__rate_interval])))")
}

/// The number of events between one point and the next that every replica observes, counted once.
pub(super) fn events_once(counter: &str, of: &str, by: &str) -> String {
    format!("{} * $__interval_ms / 1000", once(counter, of, by))
}

/// A range query.
pub(super) fn over_time(text: &str, legend: &str) -> Target {
    Target { expression: query(text), legend: legend.to_owned(), shape: Shape::Range }
}

/// An instant query.
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
    fn selectors_are_expanded() {
        assert_eq!(
            query("max by (name) (\n    plimsoll_target{@vpa, resource=\"cpu\"}\n)"),
            "max by (name) ( plimsoll_target{cluster=~\"$cluster\", job=~\"$job\", \
             instance=~\"$instance\", kind=\"vpa\", namespace=~\"$namespace\", name=~\"$name\", \
             resource=\"cpu\"} )"
        );
        assert!(!query("a{@of_vpa} / b{@of_wpa} / c{@wpa} / d{@}").contains('@'));
    }
}
