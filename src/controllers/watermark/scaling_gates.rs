//! What has to be well before an object is followed: a monitor, an alert. Both are asked at each look.

use std::time::Duration;

use kube::ResourceExt as _;
use plimsoll_core::types::{ObjectKey, Time};

use super::{
    WatermarkController,
    exported_state::{ExportedMonitor, ExportedState},
    object_state::ObjectState,
};
use crate::cluster::metrics_api::source::promql::{check_query, requires_label};
use plimsoll_core::{
    api::{
        annotations::{HOLD_WHILE, InvalidAnnotation, MONITOR, QUERY},
        wpa::WatermarkPodAutoscalerSpec,
    },
    scaling::{MetricError, MetricValue},
    types::compat::Compat,
    watermark::{
        WpaOptions,
        conditions::{ConditionType, ConditionUpdate, condition_since},
        monitor_gate::{self, Alert, GateResult, Monitor},
        warnings,
    },
};

/// Something in the way of following an object.
pub(super) struct Blocked {
    /// What.
    pub reason: String,
    /// When it is worth another look.
    pub retry_after: Duration,
}

impl WatermarkController {
    /// Reads what the object asks for in annotations, and says which of it makes no sense, and what else is odd.
    pub(super) async fn read_options(
        &self,
        seat: &mut ObjectState,
        filled: &WatermarkPodAutoscalerSpec,
        now: Time,
    ) {
        if self.config.compat == Compat::Upstream {
            return;
        }
        let (options, bad) = read_annotations(seat.object.annotations(), self.config.period);
        seat.options = options;
        let bad: Vec<String> = bad.iter().map(ToString::to_string).collect();
        let mut odd = warnings::collect(filled, &seat.options);
        odd.extend(self.unconfirmed_alert(seat));
        let before = seat.status();
        let mut said = Vec::new();
        for (fact, found, reason, well) in [
            (ConditionType::AnnotationsIgnored, bad, "BadValue", "every annotation makes sense"),
            (ConditionType::SpecDoubtful, odd, "LooksWrong", "nothing is odd about it"),
        ] {
            let was = before.conditions.iter().any(|one| one.kind == fact.name());
            if !found.is_empty() {
                said.push(ConditionUpdate::new(fact, true, reason, found.join("; ")));
            } else if was {
                said.push(ConditionUpdate::new(fact, false, "AllUnderstood", well));
            }
        }
        if !said.is_empty() {
            self.write_conditions(seat, &said, now).await;
        }
    }

    /// Asks what has to be well, if anything has to.
    pub(super) async fn check_gates(
        &self,
        key: &ObjectKey,
        seat: &mut ObjectState,
        shown: &mut ExportedState,
        now: Time,
    ) -> Option<Blocked> {
        let mut said = Vec::new();
        let mut blocked = None;
        for verdict in
            [self.check_monitor(key, seat, shown).await, self.check_alert(seat, now).await]
        {
            let Some(verdict) = verdict else { continue };
            // What is in the way is what is said.
            if blocked.is_none() {
                said = vec![verdict.condition];
                blocked = verdict.blocked;
            }
        }
        // Upstream leaves an object blocked whose gate was taken away: for its condition, and for alerts that ask for it.
        if said.is_empty()
            && self.config.compat == Compat::Plimsoll
            && condition_since(&seat.status(), ConditionType::ScalingBlocked).holds
        {
            said.push(monitor_gate::unblocked());
        }
        if blocked.is_some() && self.config.compat == Compat::Upstream {
            let [inactive, _] = ConditionUpdate::unprocessed();
            said.insert(0, inactive);
        }
        if !said.is_empty() {
            self.write_conditions(seat, &said, now).await;
        }
        blocked.map(|(why, pause)| Blocked { reason: why, retry_after: pause })
    }

    async fn check_monitor(
        &self,
        key: &ObjectKey,
        seat: &mut ObjectState,
        shown: &mut ExportedState,
    ) -> Option<GateResult> {
        shown.monitor = None;
        let annotations = seat.object.annotations();
        match monitor_gate::is_enabled(
            annotations.get(monitor_gate::ENABLED_ANNOTATION).map(String::as_str),
        ) {
            Ok(false) => return None,
            Ok(true) => {}
            Err(said) => return Some(GateResult { condition: said, blocked: None }),
        }
        let named = MONITOR.read(annotations, monitor_name).ok().flatten();
        let named = named.filter(|_| self.config.compat == Compat::Plimsoll);
        let name = named.unwrap_or_else(|| key.name.to_string());
        let found = self.read_monitor(&key.namespace, &name).await;
        let of = format!("{}/{name}", key.namespace);
        let verdict =
            monitor_gate::evaluate_monitor(&of, &found, seat.options.unknown_gate_is_open);
        let was_unread = seat.has_unread_monitor;
        seat.has_unread_monitor = matches!(found, Monitor::Unreadable(_));
        if let Monitor::Unreadable(why) = &found
            && (!was_unread || self.config.compat == Compat::Upstream)
        {
            self.emit_event(seat, true, "FailedGetDatadogMonitor", why.clone());
        }
        shown.monitor = Some(ExportedMonitor { name, blocks: verdict.blocked.is_some() });
        Some(verdict)
    }

    async fn read_monitor(&self, namespace: &str, name: &str) -> Monitor {
        let path =
            format!("/apis/datadoghq.com/v1alpha1/namespaces/{namespace}/datadogmonitors/{name}");
        let Ok(request) = http::Request::get(path).body(Vec::new()) else {
            return Monitor::Unreadable("its name is none".to_owned());
        };
        let asked = self.client.request::<serde_json::Value>(request);
        match tokio::time::timeout(self.config.request_timeout, asked).await {
            Ok(Ok(found)) => match found["status"]["monitorState"].as_str() {
                Some(state) => Monitor::State(state.to_owned()),
                None => Monitor::NoState,
            },
            Ok(Err(kube::Error::Api(status))) => Monitor::Unreadable(status.message.clone()),
            Ok(Err(why)) => Monitor::Unreadable(why.to_string()),
            Err(_) => Monitor::Unreadable("no answer in time".to_owned()),
        }
    }

    /// An alert without the label of the namespace holds nothing where queries are confined to it. The author confirms with
    /// a matcher that the alert has the label.
    fn unconfirmed_alert(&self, seat: &ObjectState) -> Option<String> {
        let annotations = seat.object.annotations();
        let query = HOLD_WHILE.read(annotations, alert_query).ok().flatten()?;
        let namespace = seat.object.namespace().unwrap_or_default();
        let tenant = self.config.prometheus.scope.matcher(&namespace)?;
        let names_it = self.promql().is_none() || requires_label(&query, tenant.label());
        (!names_it).then(|| {
            format!(
                "annotation {}: only an alert with the label {tenant} holds replicas, as queries of this namespace read \
                 no other series; write {{{tenant}}} behind its name if it has that label",
                HOLD_WHILE.name
            )
        })
    }

    async fn check_alert(&self, seat: &ObjectState, now: Time) -> Option<GateResult> {
        if self.config.compat == Compat::Upstream {
            return None;
        }
        let query = HOLD_WHILE.read(seat.object.annotations(), alert_query).ok().flatten()?;
        let name = seat.object.annotations().get(HOLD_WHILE.name)?.trim();
        let namespace = seat.object.namespace().unwrap_or_default();
        let state =
            alert_state(self.query_prometheus(&namespace, &query, now, seat.last_reconcile).await);
        let open = seat.options.unknown_gate_is_open;
        Some(monitor_gate::evaluate_alert(name, &state, open, self.config.period))
    }
}

/// What an answer about firing alerts says. Who may not ask is not told that none fires.
fn alert_state(answer: Result<MetricValue, MetricError>) -> Alert {
    match answer {
        Ok(MetricValue::Sum { sum: ..=0, .. }) | Err(MetricError::Empty(_)) => Alert::NotFiring,
        Ok(_) => Alert::Firing,
        Err(why) => Alert::Unknown(why.to_string()),
    }
}

/// What the annotations of an object ask for, and those of them that make no sense.
pub(in crate::controllers) fn read_annotations(
    annotations: &std::collections::BTreeMap<String, String>,
    period: Duration,
) -> (WpaOptions, Vec<InvalidAnnotation>) {
    let (options, mut bad) = WpaOptions::from_annotations(annotations, period);
    bad.extend(invalid_gate_annotations(annotations));
    (options, bad)
}

/// Those that are to hold replicas back, and make no sense.
pub(crate) fn invalid_gate_annotations(
    annotations: &std::collections::BTreeMap<String, String>,
) -> impl Iterator<Item = InvalidAnnotation> {
    let held = HOLD_WHILE.read(annotations, alert_query).err();
    held.into_iter().chain(MONITOR.read(annotations, monitor_name).err())
}

/// The metric that an annotation has a query for.
pub(in crate::controllers) fn queried_metric(annotation: &str) -> Option<&str> {
    annotation.strip_prefix(QUERY.name.strip_suffix("<metric>").unwrap_or_default())
}

/// The query that tells how many of these alerts fire. One that never fired is not known to a server: that is none.
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
    check_query(&query).ok().map(|()| query)
}

/// Whether matchers are more than matchers: a brace or a comment that no quotes are around. A comment would hide what
/// follows, and a line feed end it.
fn escapes_braces(matchers: &str) -> bool {
    let (mut quote, mut is_escaped) = (None, false);
    for one in matchers.chars() {
        match quote {
            Some(_) if is_escaped => is_escaped = false,
            Some(open) if one == open => quote = None,
            Some('`') => {}
            Some(_) => is_escaped = one == '\\',
            None if matches!(one, '"' | '\'' | '`') => quote = Some(one),
            None if matches!(one, '{' | '}' | '#') => return true,
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
    use plimsoll_storage::prometheus::{promql::Query, selector::LabelMatchers};

    use super::*;
    use crate::cluster::metrics_api::source::promql::TenantScope;
    use plimsoll_core::api::annotations::WPA_KEYS;

    #[test]
    fn an_alert_is_asked_for_by_its_name_and_what_else_is_said_of_it() {
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
    fn an_alert_of_another_namespace_cannot_be_asked_for_and_is_not_taken_for_quiet() {
        let scope = TenantScope { label: "namespace".to_owned(), unrestricted: Vec::new() };
        let tenant = scope.matcher("shop").expect("it is confined");
        let confined = |text: &str| {
            let query = alert_query(text).expect("an alert");
            let names_it = requires_label(&query, "namespace");
            (Query::from_tenant(&query, &LabelMatchers::default(), &tenant), names_it)
        };
        let (own, names_it) = confined("Broken");
        assert_eq!(
            own.expect("a query").as_str(),
            r#"count(ALERTS{namespace="shop",alertstate="firing",alertname="Broken"}) or vector(0)"#
        );
        assert!(!names_it, "its author is told that the alert has to have the label");
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
    fn no_annotation_is_read_without_its_nonsense_being_named() {
        for key in WPA_KEYS.into_iter().filter(|key| *key != QUERY) {
            let annotations = [(key.name.to_owned(), "(non{sense)".to_owned())].into();
            let (_, bad) = read_annotations(&annotations, Duration::from_secs(15));
            assert_eq!(bad.iter().map(|bad| bad.key).collect::<Vec<_>>(), [key.name]);
        }
    }

    #[test]
    fn a_query_names_its_metric() {
        assert_eq!(queried_metric("query.plimsoll.dev/requests"), Some("requests"));
        assert_eq!(queried_metric("plimsoll.dev/monitor"), None);
    }
}
