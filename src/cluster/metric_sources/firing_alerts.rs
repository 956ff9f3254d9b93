//! Prometheus alerts that hold the replicas of an object while they are firing, by `plimsoll.dev/hold-while`.

use plimsoll_core::{
    api::annotations::HOLD_WHILE,
    scaling::{Alert, MetricError, MetricValue},
};
use plimsoll_storage::prometheus::{promql::Query, schema::Dialect, selector::LabelMatcher};

/// The query for the number of these alerts that fire. It returns 0 for an alert that has never fired.
pub(crate) fn alert_query(text: &str) -> Option<String> {
    let (name, matchers) = match text.split_once('{') {
        Some((name, rest)) => (name.trim(), rest.strip_suffix('}')?.trim()),
        None => (text, ""),
    };
    if name.is_empty() || name.contains(['"', '\\', '\n', '}']) || escapes_braces(matchers) {
        return None;
    }
    let more = if matchers.is_empty() { String::new() } else { format!(",{matchers}") };
    let query =
        format!("count(ALERTS{{alertstate=\"firing\",alertname=\"{name}\"{more}}}) or vector(0)");
    Query::validate(&query, Dialect::PromQl).ok().map(|()| query)
}

/// Whether label matchers contain an unquoted brace or comment, and so could escape from the selector. A comment would hide
/// the rest of the query up to a line feed.
fn escapes_braces(matchers: &str) -> bool {
    let (mut quote, mut is_escaped) = (None, false);
    for character in matchers.chars() {
        match quote {
            Some(_) if is_escaped => is_escaped = false,
            Some(open) if character == open => quote = None,
            Some('`') => {}
            Some(_) => is_escaped = character == '\\',
            None if matches!(character, '"' | '\'' | '`') => quote = Some(character),
            None if matches!(character, '{' | '}' | '#') => return true,
            None => {}
        }
    }
    false
}

/// Converts the result of the query for firing alerts. A failed query does not count as not firing.
pub(crate) fn alert_state(result: Result<MetricValue, MetricError>) -> Alert {
    match result {
        Ok(MetricValue::Sum { sum: ..=0, .. }) | Err(MetricError::Empty(_)) => Alert::NotFiring,
        Ok(_) => Alert::Firing,
        Err(why) => Alert::Unknown(why.to_string()),
    }
}

/// A warning about an alert that may never be found. If queries are restricted to the namespace, only an alert with the
/// namespace label is. A matcher on that label confirms that the alert has it.
pub(crate) fn missing_label_warning(
    query: &str,
    tenant: &LabelMatcher,
    effect: &str,
) -> Option<String> {
    (!Query::every_selector_has_label(query, &tenant.label)).then(|| {
        format!(
            "annotation {}: only an alert with the label {tenant} {effect}, because queries of this namespace read no \
             other series; append {{{tenant}}} to its name if it has that label",
            HOLD_WHILE.name
        )
    })
}

#[cfg(test)]
mod tests {
    use plimsoll_storage::prometheus::selector::LabelMatchers;

    use super::*;
    use crate::cluster::metric_sources::promql::TenantScope;

    #[test]
    fn an_alert_is_queried_by_its_name_and_matchers() {
        assert_eq!(
            alert_query("CheckoutBroken").as_deref(),
            Some(r#"count(ALERTS{alertstate="firing",alertname="CheckoutBroken"}) or vector(0)"#)
        );
        assert_eq!(
            alert_query(r#"High errors {namespace="shop", team=~"a|b"}"#).as_deref(),
            Some(
                r#"count(ALERTS{alertstate="firing",alertname="High errors",namespace="shop", team=~"a|b"}) or vector(0)"#
            )
        );
        assert!(alert_query(r#"A{summary=~"a{2}\"}#"}"#).is_some());
        for text in [
            "",
            "{}",
            "a\"b",
            r#"A{namespace="shop""#,
            "A{namespace=shop}",
            "A{} or vector(1) or b{}",
            "A}",
            "A{a=\"b\" #}",
            "A{a=\"b\" #\"\n} or secret or (count(ALERTS{a=\"b\"}",
        ] {
            assert_eq!(alert_query(text), None, "{text}");
        }
    }

    #[test]
    fn an_alert_of_another_namespace_cannot_be_queried_and_counts_as_unknown() {
        let scope = TenantScope { label: "namespace".to_owned(), unrestricted: Vec::new() };
        let tenant = scope.matcher("shop").expect("it is confined");
        let confined = |text: &str| {
            let query = alert_query(text).expect("an alert");
            let names_it = missing_label_warning(&query, &tenant, "holds replicas").is_none();
            (Query::from_tenant(&query, &LabelMatchers::default(), &tenant), names_it)
        };
        let (own, names_it) = confined("Broken");
        assert_eq!(
            own.expect("a query").as_str(),
            r#"count(ALERTS{namespace="shop",alertstate="firing",alertname="Broken"}) or vector(0)"#
        );
        assert!(!names_it, "the author is warned that the alert needs the label");
        let (own, names_it) = confined(r#"Broken{namespace="shop"}"#);
        assert!(own.is_ok() && names_it);
        for matcher in [r#"namespace="bank""#, r#"namespace=~".*""#, r#"namespace!="shop""#] {
            let (other, _) = confined(&format!("Broken{{{matcher}}}"));
            let why = MetricError::Failed(other.expect_err(matcher).to_string());
            let Alert::Unknown(why) = alert_state(Err(why)) else { panic!("{matcher}") };
            assert!(why.contains("only series with namespace=\"shop\""), "{why}");
        }
        let sum = |sum| Ok(MetricValue::Sum { sum, at: None });
        assert_eq!((alert_state(sum(0)), alert_state(sum(1))), (Alert::NotFiring, Alert::Firing));
    }
}
