//! Sizing options that a VPA sets with annotations.

use std::collections::BTreeMap;

use super::{
    pod_annotations::is_dns_label,
    sizing_spec::{LimitPolicy, SizingSpec},
};
use crate::{
    api::{
        VerticalPodAutoscaler,
        annotations::{InvalidAnnotation, LIMIT_POLICY, MANAGED_SIDECARS},
    },
    types::compat::Compat,
};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct VpaOptions {
    /// The limit policy, if set. It overrides the flag.
    pub limit_policy: Option<LimitPolicy>,
    /// Injected containers that are sized nevertheless.
    pub managed_sidecars: Vec<Box<str>>,
}

impl VpaOptions {
    /// Reads the annotations of a VPA. With `Compat::Upstream` they are ignored.
    pub fn from_vpa(vpa: &VerticalPodAutoscaler, compat: Compat) -> Self {
        match (&vpa.metadata.annotations, compat) {
            (Some(annotations), Compat::Plimsoll) => Self::from_annotations(annotations).0,
            _ => Self::default(),
        }
    }

    /// Reads annotations. Invalid ones are skipped and returned.
    pub fn from_annotations(
        annotations: &BTreeMap<String, String>,
    ) -> (Self, Vec<InvalidAnnotation>) {
        let (mut options, mut bad) = (Self::default(), Vec::new());
        match LIMIT_POLICY.read(annotations, |text| text.parse().ok()) {
            Ok(limits) => options.limit_policy = limits,
            Err(invalid) => bad.push(invalid),
        }
        match MANAGED_SIDECARS.read(annotations, parse_names) {
            Ok(injected) => options.managed_sidecars = injected.unwrap_or_default(),
            Err(invalid) => bad.push(invalid),
        }
        (options, bad)
    }

    /// Returns the sizing spec of a VPA. `limits` is the policy of the flag.
    pub fn sizing_spec<'a>(
        &'a self,
        vpa: &'a VerticalPodAutoscaler,
        limits: LimitPolicy,
    ) -> SizingSpec<'a> {
        SizingSpec {
            limit_policy: self.limit_policy.unwrap_or(limits),
            managed_sidecars: &self.managed_sidecars,
            ..SizingSpec::from_vpa(vpa)
        }
    }
}

fn parse_names(text: &str) -> Option<Vec<Box<str>>> {
    let names = text.split(',').map(str::trim);
    names.map(|name| is_dns_label(name).then(|| name.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotated(pairs: &[(&str, &str)]) -> VerticalPodAutoscaler {
        let annotations: BTreeMap<&str, &str> = pairs.iter().copied().collect();
        serde_json::from_value(serde_json::json!({
            "apiVersion": "autoscaling.k8s.io/v1",
            "kind": "VerticalPodAutoscaler",
            "metadata": {"name": "web", "annotations": annotations},
            "spec": {"targetRef": {"kind": "Deployment", "name": "web"}},
        }))
        .expect("a VPA")
    }

    #[test]
    fn an_annotation_overrides_the_flag_and_is_ignored_in_upstreams_mode() {
        let vpa = annotated(&[
            ("plimsoll.dev/limit-policy", "requestsOnly"),
            ("plimsoll.dev/managed-sidecars", "proxy, log-agent"),
        ]);
        let options_of = |compat| {
            let options = VpaOptions::from_vpa(&vpa, compat);
            let sizing_spec = options.sizing_spec(&vpa, LimitPolicy::Max);
            (
                sizing_spec.limit_policy,
                sizing_spec.managed_sidecars.iter().map(ToString::to_string).collect::<Vec<_>>(),
            )
        };
        let named = ["proxy".to_owned(), "log-agent".to_owned()].to_vec();
        assert_eq!(options_of(Compat::Plimsoll), (LimitPolicy::RequestsOnly, named));
        assert_eq!(options_of(Compat::Upstream), (LimitPolicy::Max, Vec::new()));
    }

    #[test]
    fn an_invalid_value_is_reported_and_the_others_apply() {
        for (key, value) in [
            ("plimsoll.dev/limit-policy", "double"),
            ("plimsoll.dev/limit-policy", "fixed:0.5"),
            ("plimsoll.dev/managed-sidecars", ""),
            ("plimsoll.dev/managed-sidecars", "proxy,"),
            ("plimsoll.dev/managed-sidecars", "Proxy"),
        ] {
            let other = match key {
                "plimsoll.dev/limit-policy" => ("plimsoll.dev/managed-sidecars", "proxy"),
                _ => ("plimsoll.dev/limit-policy", "max"),
            };
            let vpa = annotated(&[(key, value), other]);
            let annotations = vpa.metadata.annotations.as_ref().expect("annotations");
            let (options, bad) = VpaOptions::from_annotations(annotations);
            let [bad] = &bad[..] else { panic!("{key}={value}: {bad:?}") };
            assert_eq!((bad.key, &*bad.value), (key, value));
            assert_eq!(options.limit_policy.is_some(), other.0 == "plimsoll.dev/limit-policy");
            assert_eq!(options.managed_sidecars.is_empty(), other.0 == "plimsoll.dev/limit-policy");
        }
    }
}
