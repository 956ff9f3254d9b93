//! Scaling gates: a DatadogMonitor or a Prometheus alert that blocks scaling. Both are checked on each reconcile.

use std::time::Duration;

use kube::{Client, ResourceExt as _};
use plimsoll_core::types::{ObjectKey, Time};

use super::{
    WatermarkController,
    autoscaler::{ObjectState, WatermarkAutoscaler},
};
use crate::{
    cluster::metric_sources::metrics_client::FetchContext,
    telemetry::{ExportedMonitor, ExportedState},
};
use plimsoll_core::{
    api::{
        annotations::{HOLD_WHILE, InvalidAnnotation, MONITOR},
        wpa::{WatermarkPodAutoscaler, WatermarkPodAutoscalerSpec},
    },
    scaling::{MetricError, MetricRequest, MetricValue},
    types::compat::Compat,
    watermark::{
        WpaOptions,
        conditions::{ConditionType, ConditionUpdate, condition_since},
        monitor_gate::{self, Alert, GateResult, Monitor},
        warnings,
    },
};
use plimsoll_storage::prometheus::{promql::Query, schema::Dialect};

/// A gate that blocks the scaling of an object.
pub(super) struct Blocked {
    /// Why scaling is blocked.
    pub reason: String,
    /// When to check again.
    pub retry_after: Duration,
}

/// Reads the options from the annotations, and reports invalid annotations and other warnings as conditions.
pub(super) async fn read_options(
    controller: &WatermarkController,
    state: &mut ObjectState,
    filled: &WatermarkPodAutoscalerSpec,
    now: Time,
) {
    let autoscaler = &controller.autoscaler;
    if autoscaler.config.compat == Compat::Upstream {
        return;
    }
    let (options, invalid) = read_annotations(state.object.annotations(), autoscaler.config.period);
    state.own.options = options;
    let invalid: Vec<String> = invalid.iter().map(ToString::to_string).collect();
    let mut warning_messages = warnings::collect(filled, &state.own.options);
    warning_messages.extend(unconfirmed_alert(autoscaler, &state.object));
    let before = state.status();
    let mut updates = Vec::new();
    for (condition_type, messages, reason, ok_message) in [
        (ConditionType::AnnotationsIgnored, invalid, "BadValue", "all annotations are valid"),
        (ConditionType::SpecDoubtful, warning_messages, "LooksWrong", "no warnings"),
    ] {
        let exists =
            before.conditions.iter().any(|condition| condition.kind == condition_type.name());
        if !messages.is_empty() {
            updates.push(ConditionUpdate::new(condition_type, true, reason, messages.join("; ")));
        } else if exists {
            updates.push(ConditionUpdate::new(condition_type, false, "AllUnderstood", ok_message));
        }
    }
    if !updates.is_empty() {
        controller.status.write_conditions(state, updates, now).await;
    }
}

/// Checks the gates of the object, if it has any.
pub(super) async fn check_gates(
    controller: &WatermarkController,
    key: &ObjectKey,
    state: &mut ObjectState,
    exported: &mut ExportedState,
    now: Time,
) -> Option<Blocked> {
    let is_upstream = controller.settings.compat == Compat::Upstream;
    let mut updates = Vec::new();
    let mut blocked = None;
    let monitor = check_monitor(controller, key, state, exported).await;
    let alert = check_alert(&controller.autoscaler, state, now).await;
    for result in [monitor, alert].into_iter().flatten() {
        // A gate that blocks determines the condition.
        if blocked.is_none() {
            updates = vec![result.condition];
            blocked = result.blocked;
        }
    }
    // Upstream keeps the condition true after the gate was removed, which misleads alerts that use it.
    if updates.is_empty()
        && !is_upstream
        && condition_since(&state.status(), ConditionType::ScalingBlocked).holds
    {
        updates.push(monitor_gate::unblocked());
    }
    if blocked.is_some() && is_upstream {
        let [inactive, _] = ConditionUpdate::unprocessed();
        updates.insert(0, inactive);
    }
    if !updates.is_empty() {
        controller.status.write_conditions(state, updates, now).await;
    }
    blocked.map(|(why, pause)| Blocked { reason: why, retry_after: pause })
}

async fn check_monitor(
    controller: &WatermarkController,
    key: &ObjectKey,
    state: &mut ObjectState,
    exported: &mut ExportedState,
) -> Option<GateResult> {
    exported.monitor = None;
    let annotations = state.object.annotations();
    match monitor_gate::is_enabled(
        annotations.get(monitor_gate::ENABLED_ANNOTATION).map(String::as_str),
    ) {
        Ok(false) => return None,
        Ok(true) => {}
        Err(condition) => return Some(GateResult { condition, blocked: None }),
    }
    let named = MONITOR.read(annotations, monitor_name).ok().flatten();
    let named = named.filter(|_| controller.settings.compat == Compat::Plimsoll);
    let name = named.unwrap_or_else(|| key.name.to_string());
    let timeout = controller.settings.request_timeout;
    let found = read_monitor(&controller.client, timeout, &key.namespace, &name).await;
    let qualified_name = format!("{}/{name}", key.namespace);
    let result = monitor_gate::evaluate_monitor(
        &qualified_name,
        &found,
        state.own.options.unknown_gate_is_open,
    );
    let was_unread = state.own.has_unread_monitor;
    state.own.has_unread_monitor = matches!(found, Monitor::Unreadable(_));
    if let Monitor::Unreadable(why) = &found
        && (!was_unread || controller.settings.compat == Compat::Upstream)
    {
        controller.events.emit(state, true, "FailedGetDatadogMonitor", why.clone());
    }
    exported.monitor = Some(ExportedMonitor { name, blocks: result.blocked.is_some() });
    Some(result)
}

async fn read_monitor(client: &Client, timeout: Duration, namespace: &str, name: &str) -> Monitor {
    let path =
        format!("/apis/datadoghq.com/v1alpha1/namespaces/{namespace}/datadogmonitors/{name}");
    let Ok(request) = http::Request::get(path).body(Vec::new()) else {
        return Monitor::Unreadable("invalid DatadogMonitor name".to_owned());
    };
    let response = client.request::<serde_json::Value>(request);
    match tokio::time::timeout(timeout, response).await {
        Ok(Ok(found)) => match found["status"]["monitorState"].as_str() {
            Some(state) => Monitor::State(state.to_owned()),
            None => Monitor::NoState,
        },
        Ok(Err(kube::Error::Api(status))) => Monitor::Unreadable(status.message.clone()),
        Ok(Err(why)) => Monitor::Unreadable(why.to_string()),
        Err(_) => Monitor::Unreadable("timed out reading the DatadogMonitor".to_owned()),
    }
}

/// A warning about an alert that may never block scaling. If queries are restricted to the namespace, only an alert with
/// the namespace label blocks. A matcher on that label confirms that the alert has it.
fn unconfirmed_alert(
    autoscaler: &WatermarkAutoscaler,
    object: &WatermarkPodAutoscaler,
) -> Option<String> {
    let annotations = object.annotations();
    let query = HOLD_WHILE.read(annotations, alert_query).ok().flatten()?;
    let namespace = object.namespace().unwrap_or_default();
    let tenant = autoscaler.config.prometheus.scope.matcher(&namespace)?;
    let has_prometheus = autoscaler.metrics_client.has_prometheus();
    let has_matcher = !has_prometheus || Query::every_selector_has_label(&query, tenant.label());
    (!has_matcher).then(|| {
        format!(
            "annotation {}: only an alert with the label {tenant} blocks scaling, because queries of this namespace \
             read no other series; append {{{tenant}}} to its name if it has that label",
            HOLD_WHILE.name
        )
    })
}

async fn check_alert(
    autoscaler: &WatermarkAutoscaler,
    state: &ObjectState,
    now: Time,
) -> Option<GateResult> {
    if autoscaler.config.compat == Compat::Upstream {
        return None;
    }
    let query = HOLD_WHILE.read(state.object.annotations(), alert_query).ok().flatten()?;
    let name = state.object.annotations().get(HOLD_WHILE.name)?.trim();
    let namespace = state.object.namespace().unwrap_or_default();
    let last_reconcile = state.last_reconcile;
    let context = FetchContext { namespace: &namespace, now, last_reconcile };
    let request = MetricRequest::PromQl { query };
    let alert = alert_state(autoscaler.metrics_client.fetch_one(&context, &request).await);
    let opens_if_unknown = state.own.options.unknown_gate_is_open;
    let period = autoscaler.config.period;
    Some(monitor_gate::evaluate_alert(name, &alert, opens_if_unknown, period))
}

/// Converts the result of the query for firing alerts. A failed query does not count as not firing.
fn alert_state(result: Result<MetricValue, MetricError>) -> Alert {
    match result {
        Ok(MetricValue::Sum { sum: ..=0, .. }) | Err(MetricError::Empty(_)) => Alert::NotFiring,
        Ok(_) => Alert::Firing,
        Err(why) => Alert::Unknown(why.to_string()),
    }
}

/// The options of the annotations of an object, and the invalid annotations.
pub(in crate::controllers) fn read_annotations(
    annotations: &std::collections::BTreeMap<String, String>,
    period: Duration,
) -> (WpaOptions, Vec<InvalidAnnotation>) {
    let (options, mut invalid) = WpaOptions::from_annotations(annotations, period);
    invalid.extend(invalid_gate_annotations(annotations));
    (options, invalid)
}

/// Those that are to hold replicas back, and make no sense.
pub(crate) fn invalid_gate_annotations(
    annotations: &std::collections::BTreeMap<String, String>,
) -> impl Iterator<Item = InvalidAnnotation> {
    let held = HOLD_WHILE.read(annotations, alert_query).err();
    held.into_iter().chain(MONITOR.read(annotations, monitor_name).err())
}

/// The query for the number of these alerts that fire. It returns 0 for an alert that has never fired.
fn alert_query(text: &str) -> Option<String> {
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

fn monitor_name(text: &str) -> Option<String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    let fits = !text.is_empty() && text.len() <= 253 && text.bytes().all(is_name);
    fits.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use plimsoll_storage::prometheus::selector::LabelMatchers;

    use super::*;
    use crate::cluster::metric_sources::promql::TenantScope;
    use plimsoll_core::api::annotations::{QUERY, WPA_KEYS};

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
            let names_it = Query::every_selector_has_label(&query, "namespace");
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
            let state = alert_state(Err(why));
            let verdict =
                monitor_gate::evaluate_alert("Broken", &state, false, Duration::from_secs(15));
            let (why, _) = verdict.blocked.expect("replicas stay");
            assert!(why.contains("only series with namespace=\"shop\""), "{why}");
        }
        let sum = |sum| Ok(MetricValue::Sum { sum, at: None });
        assert_eq!((alert_state(sum(0)), alert_state(sum(1))), (Alert::NotFiring, Alert::Firing));
    }

    #[test]
    fn every_invalid_annotation_is_reported() {
        for key in WPA_KEYS.into_iter().filter(|key| *key != QUERY) {
            let annotations = [(key.name.to_owned(), "(non{sense)".to_owned())].into();
            let (_, bad) = read_annotations(&annotations, Duration::from_secs(15));
            assert_eq!(bad.iter().map(|bad| bad.key).collect::<Vec<_>>(), [key.name]);
        }
    }
}
