//! Scaling gates: a DatadogMonitor or a Prometheus alert that blocks scaling. Both are checked on each reconcile.

use std::time::Duration;

use kube::{Client, ResourceExt as _};
use plimsoll_core::types::{ObjectKey, Time};

use super::{
    WatermarkController,
    autoscaler::{ObjectState, WatermarkAutoscaler},
};
use crate::{
    cluster::metric_sources::{
        firing_alerts::{alert_query, alert_state, missing_label_warning},
        metrics_client::FetchContext,
    },
    telemetry::{ExportedMonitor, ExportedState},
};
use plimsoll_core::{
    api::{
        annotations::{HOLD_WHILE, InvalidAnnotation, MONITOR},
        wpa::{WatermarkPodAutoscaler, WatermarkPodAutoscalerSpec},
    },
    scaling::MetricRequest,
    types::compat::Compat,
    watermark::{
        WpaOptions,
        conditions::{ConditionType, ConditionUpdate, condition_since},
        monitor_gate::{self, GateResult, Monitor},
        warnings,
    },
};

/// Reads the options from the annotations, and reports invalid annotations and other warnings as conditions.
pub(super) async fn read_options(
    controller: &WatermarkController,
    state: &mut ObjectState,
    filled: &WatermarkPodAutoscalerSpec,
    now: Time,
) {
    let autoscaler = &controller.autoscaler;
    if autoscaler.config.settings.compat == Compat::Upstream {
        return;
    }
    let (options, invalid) =
        read_annotations(state.object.annotations(), autoscaler.config.settings.period);
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
            before.conditions.iter().any(|condition| condition.kind == condition_type.into_str());
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

/// Checks the gates of the object, if it has any. Returns why one blocks scaling, and when to check again.
pub(super) async fn check_gates(
    controller: &WatermarkController,
    key: &ObjectKey,
    state: &mut ObjectState,
    exported: &mut ExportedState,
    now: Time,
) -> Option<(String, Duration)> {
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
    blocked
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
    let found = read_monitor(&controller.status.client, timeout, &key.namespace, &name).await;
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
        controller.status.emit(state, true, "FailedGetDatadogMonitor", why.clone());
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
    if has_prometheus { missing_label_warning(&query, &tenant, "blocks scaling") } else { None }
}

async fn check_alert(
    autoscaler: &WatermarkAutoscaler,
    state: &ObjectState,
    now: Time,
) -> Option<GateResult> {
    if autoscaler.config.settings.compat == Compat::Upstream {
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
    let period = autoscaler.config.settings.period;
    Some(monitor_gate::evaluate_alert(name, &alert, opens_if_unknown, period))
}

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

fn monitor_name(text: &str) -> Option<String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    let fits = !text.is_empty() && text.len() <= 253 && text.bytes().all(is_name);
    fits.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::api::annotations::{QUERY, WPA_KEYS};

    #[test]
    fn every_invalid_annotation_is_reported() {
        for key in WPA_KEYS.into_iter().filter(|key| *key != QUERY) {
            let annotations = [(key.name.to_owned(), "(non{sense)".to_owned())].into();
            let (_, bad) = read_annotations(&annotations, Duration::from_secs(15));
            assert_eq!(bad.iter().map(|bad| bad.key).collect::<Vec<_>>(), [key.name]);
        }
    }
}
