//! The flags for the webhook's registration and its Lease, with upstream's names.

use std::{collections::BTreeMap, time::Duration};

use clap::{ArgAction, Args};

use super::{go_values, parsed_flags::ParsedFlags};
use crate::{
    cluster::write::webhook_config::{DesiredWebhook, WebhookClientConfig, WebhookNamespaces},
    controllers::admission::config::LeaseConfig,
};
use plimsoll_core::{recommender::NamespaceScope, types::compat::Compat};

/// The webhook's registration, and the Lease that reports its health to updaters.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Registration")]
pub struct RegistrationArgs {
    /// Registers the webhook, and keeps the registration up to date
    #[arg(long, action = ArgAction::Set, value_name = "BOOL", default_value = "true")]
    register_webhook: bool,
    /// Service by which API servers reach the webhook
    #[arg(long, value_name = "NAME", default_value = "vpa-webhook", hide_short_help = true)]
    webhook_service: String,
    /// Registers an address instead of a Service
    #[arg(long, hide_short_help = true)]
    pub register_by_url: bool,
    /// Address to register, starting with https://
    #[arg(long, value_name = "URL", default_value = "", hide_short_help = true)]
    webhook_address: String,
    /// Port of the registered address
    #[arg(long, value_name = "PORT", default_value = "", hide_short_help = true)]
    webhook_port: String,
    /// Seconds that API servers wait for a response
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    #[arg(value_parser = go_values::integer_between(i32::MIN, i32::MAX), hide_short_help = true)]
    webhook_timeout_seconds: i32,
    /// Sets the failure policy to Fail: no pods are created while the webhook is unavailable
    #[arg(long, hide_short_help = true)]
    webhook_failure_policy_fail: bool,
    /// Labels of the webhook configuration, such as k1:v1,k2:v2
    #[arg(long, value_name = "LABELS", default_value = "", hide_short_help = true)]
    webhook_labels: String,
    /// Lease that reports that the webhook is reachable
    #[arg(long, value_name = "NAME", default_value = "vpa-admission-controller")]
    #[arg(hide_short_help = true)]
    status_lease_name: String,
    /// Namespace of that Lease [default: NAMESPACE, or kube-system]
    #[arg(long, value_name = "NAMESPACE", default_value = "", hide_short_help = true)]
    status_lease_namespace: String,
    /// Renewal interval of that Lease
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = go_values::duration)]
    #[arg(hide_short_help = true)]
    status_lease_update_interval: Duration,
}

impl RegistrationArgs {
    /// Returns the webhook to register, or `None` if registration is disabled, and a warning.
    pub fn desired_webhook(
        &self,
        client_config: WebhookClientConfig,
        scope: &NamespaceScope,
        compat: Compat,
    ) -> (Option<DesiredWebhook>, Option<String>) {
        let (labels, warning) = labels(&self.webhook_labels);
        let wanted = DesiredWebhook {
            labels,
            client_config,
            namespaces: namespaces(scope, compat),
            fail_closed: self.webhook_failure_policy_fail,
            timeout_seconds: self.webhook_timeout_seconds,
            reinvoke_if_needed: compat == Compat::Plimsoll,
            include_wpas: compat == Compat::Plimsoll,
            include_hpas: compat == Compat::Plimsoll,
        };
        (self.register_webhook.then_some(wanted), warning)
    }

    /// Builds the Lease settings. `namespace` is the namespace of the process.
    pub fn lease(&self, namespace: &str) -> LeaseConfig {
        let configured = Some(&*self.status_lease_namespace).filter(|name| !name.is_empty());
        LeaseConfig {
            namespace: configured.unwrap_or(namespace).to_owned(),
            name: self.status_lease_name.clone(),
            interval: self.status_lease_update_interval,
        }
    }

    pub fn ineffective_flags_warning(&self, typed: &ParsedFlags) -> Option<String> {
        let ineffective = typed.set_among(&["webhook_address", "webhook_port"]);
        (!self.register_by_url && !ineffective.is_empty())
            .then(|| format!("no effect without --register-by-url: {}", ineffective.join(", ")))
    }

    /// How API servers reach the webhook. `namespace` is the namespace of the process.
    pub fn client_config(&self, namespace: &str) -> WebhookClientConfig {
        if self.register_by_url {
            // Joined like in upstream.
            return WebhookClientConfig::Url(format!(
                "{}:{}",
                self.webhook_address, self.webhook_port
            ));
        }
        WebhookClientConfig::Service {
            namespace: namespace.to_owned(),
            name: self.webhook_service.clone(),
        }
    }
}

/// The namespaces in which the webhook is called. Upstream's list of ignored namespaces is never empty: if the flag is not
/// set, it contains one empty name, which excludes nothing and overrides the namespace to handle.
fn namespaces(scope: &NamespaceScope, compat: Compat) -> WebhookNamespaces {
    if !scope.ignored.is_empty() {
        return WebhookNamespaces::Except(scope.ignored.clone());
    }
    match (compat, &scope.only) {
        (Compat::Upstream, _) => WebhookNamespaces::Except(vec![String::new()]),
        (Compat::Plimsoll, Some(only)) => WebhookNamespaces::Only(only.clone()),
        (Compat::Plimsoll, None) => WebhookNamespaces::All,
    }
}

/// Parses labels like upstream: if one is invalid, there are no labels at all.
fn labels(text: &str) -> (BTreeMap<String, String>, Option<String>) {
    let text = text.trim_matches('"');
    if text.is_empty() {
        return (BTreeMap::new(), None);
    }
    let pair = |piece: &str| {
        let (key, value) = piece.split_once(':')?;
        let (key, value) = (key.trim(), value.trim());
        (!key.is_empty()).then(|| (key.to_owned(), value.to_owned()))
    };
    if let Some(labels) = text.split(',').map(pair).collect() {
        return (labels, None);
    }
    let why = "--webhook-labels: expected k1:v1,k2:v2; registering without labels";
    (BTreeMap::new(), Some(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Golden vectors 300 and 301.
    #[test]
    fn labels_are_parsed_as_upstream_parses_them() {
        for text in [
            "key1:value1,key2:value2",
            "key1:value1, key2:value2",
            "key1 : value1,key2: value2",
            "\"key1:value1,key2:value2\"",
        ] {
            let expected =
                ["1", "2"].map(|number| (format!("key{number}"), format!("value{number}")));
            assert_eq!(labels(text), (expected.into(), None), "{text}");
        }
        for text in ["foo,bar", "key1:value1,:bar", ","] {
            let (read, warning) = labels(text);
            assert!(read.is_empty() && warning.is_some(), "{text}");
        }
        assert_eq!(labels(""), (BTreeMap::new(), None));
    }
}
