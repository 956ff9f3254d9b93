//! Checks of the admission webhook.

use super::{
    facts::{ClusterFacts, WebhookFacts},
    finding::{CheckId, Finding, count},
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

/// The number of VPAs that change new pods; an error if they are unknown.
fn acting_vpas(facts: &ClusterFacts) -> Result<usize, &String> {
    let vpas = facts.vpas.as_ref()?;
    Ok(vpas.iter().filter(|vpa| vpa.spec.update_mode() != UpdateMode::Off).count())
}

pub(super) fn webhook_registered(facts: &ClusterFacts) -> Finding {
    let id = CheckId::WebhookRegistered;
    let webhooks = match &facts.webhooks {
        Ok(webhooks) => webhooks,
        Err(why) => return Finding::unknown(id, why),
    };
    if let Some(own) = own(webhooks) {
        return match &own.without_endpoints {
            None => Finding::ok(id, format!("The webhook {} is called for new pods.", own.name)),
            Some(Err(why)) => Finding::unknown(id, why),
            Some(Ok(service)) => {
                let message = format!(
                    "The webhook is registered, but its Service {service} has no ready pod."
                );
                Finding::problem(id, message)
                    .measured("0 endpoints", "1 or more")
                    .objects([service.as_str()])
                    .next("plimsoll status")
            }
        };
    }
    let needed = match acting_vpas(facts) {
        Ok(needed) => needed,
        Err(why) => return Finding::unknown(id, why),
    };
    if needed == 0 {
        return Finding::ok(id, "No webhook is registered, and no VPA needs one.");
    }
    let message = format!(
        "No admission webhook is registered for pods: {} no effect on new pods.",
        if needed == 1 { "1 VPA has".to_owned() } else { format!("{needed} VPAs have") }
    );
    Finding::problem(id, message).measured("not registered", "vpa-webhook-config").next(NEXT)
}

/// `None` if it was not tried.
pub(super) fn webhook_answers(facts: &ClusterFacts) -> Option<Finding> {
    let id = CheckId::WebhookAnswers;
    Some(match facts.live_pod.as_ref()? {
        Err(why) => Finding::unknown(id, why),
        Ok(live) if live.is_changed => {
            Finding::ok(id, format!("The webhook changed a copy of pod {} (dry run).", live.pod))
        }
        Ok(live) => {
            let message =
                format!("The webhook did not change a copy of pod {} (dry run).", live.pod);
            Finding::problem(id, message)
                .measured("no annotation vpaUpdates", "annotation vpaUpdates")
                .objects([live.pod.as_str()])
                .next("kubectl logs -n kube-system -l app.kubernetes.io/component=admission-controller")
        }
    })
}

/// Configurations are called in the order of their names.
pub(super) fn webhook_order(facts: &ClusterFacts) -> Finding {
    let id = CheckId::WebhookOrder;
    let webhooks = match &facts.webhooks {
        Ok(webhooks) => webhooks,
        Err(why) => return Finding::unknown(id, why),
    };
    let Some(own) = own(webhooks) else {
        return Finding::ok(
            id,
            "No admission webhook is registered, so its order does not matter.",
        );
    };
    let is_injector = |name: &str| INJECTORS.iter().any(|part| name.contains(part));
    let behind: Vec<&str> = webhooks
        .iter()
        .filter(|one| one.mutates_pods && one.name > own.name && is_injector(&one.name))
        .map(|one| &*one.name)
        .collect();
    if behind.is_empty() || own.is_reinvoked {
        return Finding::ok(id, "No webhook adds containers after the admission webhook.");
    }
    let message = format!(
        "{} called after {}: containers that they add keep their requests.",
        if behind.len() == 1 {
            "1 webhook is".to_owned()
        } else {
            format!("{} webhooks are", behind.len())
        },
        own.name
    );
    Finding::warning(id, message)
        .measured(format!("{} behind", behind.len()), "reinvocationPolicy: IfNeeded")
        .objects(behind)
        .next(NEXT)
}

pub(super) fn ca_expiring(facts: &ClusterFacts) -> Finding {
    let id = CheckId::CaExpiring;
    let webhooks = match &facts.webhooks {
        Ok(webhooks) => webhooks,
        Err(why) => return Finding::unknown(id, why),
    };
    let Some(own) = own(webhooks) else {
        return Finding::ok(id, "No admission webhook is registered, so no CA can expire.");
    };
    let next = "kubectl get mutatingwebhookconfigurations -o yaml";
    let expires = match &own.ca_expires {
        Ok(expires) => *expires,
        Err(why) => {
            return Finding::problem(id, format!("The CA of {} is invalid: {why}.", own.name))
                .objects([&*own.name])
                .next(next);
        }
    };
    let seconds = expires.as_secs() - facts.now.as_secs();
    let days = seconds.div_euclid(86_400);
    let wanted = format!("{WARN_DAYS} days or more");
    let left = count(usize::try_from(days).unwrap_or(0), "day");
    if seconds < 0 {
        return Finding::problem(id, format!("The CA of {} has expired.", own.name))
            .measured("expired", wanted)
            .objects([&*own.name])
            .next(next);
    }
    if days >= WARN_DAYS {
        return Finding::ok(id, format!("The CA of {} is valid for {left}.", own.name));
    }
    let message = format!("The CA of {} expires in {left}.", own.name);
    let finding = if days < PROBLEM_DAYS {
        Finding::problem(id, message)
    } else {
        Finding::warning(id, message)
    };
    finding.measured(left, wanted).objects([&*own.name]).next(next)
}
