//! Checks of the admission webhook.

use super::{
    facts::{ClusterFacts, LivePod, Reading, WebhookFacts},
    finding::{CheckId, Finding, HAVE, Level, count, subject},
};
use crate::api::vpa::UpdateMode;

/// Days before the CA expires at which it is a warning.
const WARN_DAYS: i64 = 30;
/// Days before the CA expires at which it is a problem.
const PROBLEM_DAYS: i64 = 7;
/// Parts of names of webhooks that add containers to pods.
const INJECTORS: [&str; 7] = ["inject", "sidecar", "istio", "linkerd", "vault", "dapr", "datadog"];

const NEXT: &str = "kubectl get mutatingwebhookconfigurations";

/// The configuration of the admission controller.
fn own(webhooks: &[WebhookFacts]) -> Option<&WebhookFacts> {
    webhooks.iter().find(|webhook| webhook.is_admission_controller && webhook.mutates_pods)
}

pub(super) fn webhook_registered(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let webhooks = facts.webhooks.as_ref()?;
    if let Some(own) = own(webhooks) {
        let Some(service) = &own.without_endpoints else {
            return Ok(Finding::ok(
                id,
                format!("The webhook {} is called for new pods.", own.name),
            ));
        };
        let service = service.as_ref()?;
        let message =
            format!("The webhook is registered, but its Service {service} has no ready pod.");
        return Ok(Finding::problem(id, message)
            .measured("0 endpoints", "1 or more")
            .objects([service.as_str()])
            .next("plimsoll status"));
    }
    let vpas = facts.vpas.as_ref()?.iter();
    let needed = vpas.filter(|vpa| vpa.spec.update_mode() != UpdateMode::Off).count();
    if needed == 0 {
        return Ok(Finding::ok(id, "No webhook is registered, and no VPA needs one."));
    }
    let message = format!(
        "No admission webhook is registered for pods: {} no effect on new pods.",
        subject(needed, "VPA", HAVE)
    );
    Ok(Finding::problem(id, message).measured("not registered", "vpa-webhook-config").next(NEXT))
}

pub(super) fn webhook_answers(id: CheckId, live: &Reading<LivePod>) -> Reading<Finding> {
    let LivePod { pod, is_changed } = live.as_ref()?;
    if *is_changed {
        let message = format!("The webhook changed a copy of pod {pod} (dry run).");
        return Ok(Finding::ok(id, message));
    }
    Ok(Finding::problem(id, format!("The webhook did not change a copy of pod {pod} (dry run)."))
        .measured("no annotation vpaUpdates", "annotation vpaUpdates")
        .objects([pod.as_str()])
        .next("kubectl logs -n kube-system -l app.kubernetes.io/component=admission-controller"))
}

/// Configurations are called in the order of their names.
pub(super) fn webhook_order(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let webhooks = facts.webhooks.as_ref()?;
    let Some(own) = own(webhooks) else {
        return Ok(Finding::ok(
            id,
            "No admission webhook is registered, so its order does not matter.",
        ));
    };
    let is_injector = |name: &str| INJECTORS.iter().any(|part| name.contains(part));
    let behind: Vec<&str> = webhooks
        .iter()
        .filter(|one| one.mutates_pods && one.name > own.name && is_injector(&one.name))
        .map(|one| &*one.name)
        .collect();
    if behind.is_empty() || own.is_reinvoked {
        return Ok(Finding::ok(id, "No webhook adds containers after the admission webhook."));
    }
    let message = format!(
        "{} called after {}: containers that they add keep their requests.",
        subject(behind.len(), "webhook", ["is", "are"]),
        own.name
    );
    Ok(Finding::warning(id, message)
        .measured(format!("{} behind", behind.len()), "reinvocationPolicy: IfNeeded")
        .objects(behind)
        .next(NEXT))
}

pub(super) fn ca_expiring(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let webhooks = facts.webhooks.as_ref()?;
    let Some(own) = own(webhooks) else {
        return Ok(Finding::ok(id, "No admission webhook is registered, so no CA can expire."));
    };
    let next = "kubectl get mutatingwebhookconfigurations -o yaml";
    let expires = match &own.ca_expires {
        Ok(expires) => *expires,
        Err(why) => {
            return Ok(Finding::problem(id, format!("The CA of {} is invalid: {why}.", own.name))
                .objects([&*own.name])
                .next(next));
        }
    };
    let seconds = expires.as_secs() - facts.now.as_secs();
    let days = seconds.div_euclid(86_400);
    let wanted = format!("{WARN_DAYS} days or more");
    let left = count(usize::try_from(days).unwrap_or(0), "day");
    if seconds < 0 {
        return Ok(Finding::problem(id, format!("The CA of {} has expired.", own.name))
            .measured("expired", wanted)
            .objects([&*own.name])
            .next(next));
    }
    if days >= WARN_DAYS {
        return Ok(Finding::ok(id, format!("The CA of {} is valid for {left}.", own.name)));
    }
    let message = format!("The CA of {} expires in {left}.", own.name);
    let level = if days < PROBLEM_DAYS { Level::Problem } else { Level::Warning };
    let finding = Finding::new(id, level, message).measured(left, wanted);
    Ok(finding.objects([&*own.name]).next(next))
}
