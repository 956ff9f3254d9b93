//! The rule of which VPA owns a pod: among those that act on it and whose selector matches, the oldest, and of the same age
//! the first by name.

use crate::{
    api::{
        VerticalPodAutoscaler,
        vpa::{UpdateMode, VerticalPodAutoscalerSpec},
    },
    types::compat::Compat,
};

/// Whether a VPA changes new pods. One in mode `Off` does only if it has a startup boost.
pub fn changes_new_pods(vpa: &VerticalPodAutoscaler) -> bool {
    vpa.spec.update_mode() != UpdateMode::Off || has_startup_boost(&vpa.spec)
}

/// Whether a VPA competes for running pods. Upstream leaves out the older one of two if that one leaves running pods alone,
/// and so evicts pods that are recreated with the older one's resources.
pub fn changes_running_pods(vpa: &VerticalPodAutoscaler, compat: Compat) -> bool {
    match compat {
        Compat::Plimsoll => changes_new_pods(vpa),
        Compat::Upstream => {
            let is_passive =
                matches!(vpa.spec.update_mode(), UpdateMode::Off | UpdateMode::Initial);
            !is_passive || has_startup_boost(&vpa.spec)
        }
    }
}

/// Whether a VPA boosts any of its containers at startup.
pub fn has_startup_boost(spec: &VerticalPodAutoscalerSpec) -> bool {
    let policies = spec.resource_policy.iter().flat_map(|policy| &policy.container_policies);
    spec.startup_boost.is_some()
        || policies.into_iter().any(|policy| policy.startup_boost.is_some())
}

/// The one that owns a pod, of candidates whose selectors match it.
pub fn select<'a, T>(
    candidates: impl IntoIterator<Item = T>,
    vpa: impl Fn(&T) -> &'a VerticalPodAutoscaler,
) -> Option<T> {
    candidates
        .into_iter()
        .reduce(|best, other| if takes_precedence(vpa(&other), vpa(&best)) { other } else { best })
}

fn takes_precedence(one: &VerticalPodAutoscaler, other: &VerticalPodAutoscaler) -> bool {
    let created =
        |vpa: &VerticalPodAutoscaler| vpa.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (created(one), &one.metadata.name) < (created(other), &other.metadata.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vpa(yaml: &str) -> VerticalPodAutoscaler {
        serde_saphyr::from_str(&format!(
            "{{apiVersion: autoscaling.k8s.io/v1, kind: VerticalPodAutoscaler, {yaml}}}"
        ))
        .expect("a VPA")
    }

    fn created(name: &str, at: &str) -> VerticalPodAutoscaler {
        vpa(&format!(
            "metadata: {{name: {name}, creationTimestamp: {at:?}}}, spec: {{targetRef: {{kind: Deployment, name: web}}}}"
        ))
    }

    #[test]
    fn the_oldest_vpa_owns_a_pod_and_for_equal_ages_the_first_by_name() {
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
        for (vpas, expected) in [
            (&[("z", early), ("a", late)][..], Some("z")),
            (&[("a", late), ("z", early)], Some("z")),
            (&[("b", early), ("a", early)], Some("a")),
            (&[("a", early), ("b", early)], Some("a")),
            (&[("c", late), ("b", late), ("z", early), ("y", early)], Some("y")),
            (&[], None),
        ] {
            let vpas: Vec<_> = vpas.iter().map(|(name, at)| created(name, at)).collect();
            let selected = select(&vpas, |vpa| vpa);
            assert_eq!(selected.and_then(|vpa| vpa.metadata.name.as_deref()), expected, "{vpas:?}");
        }
    }

    #[test]
    fn a_vpa_of_unknown_age_is_older_than_all_others() {
        let vpas = [
            created("a", "2026-01-01T00:00:00Z"),
            vpa("metadata: {name: b}, spec: {targetRef: {kind: Deployment, name: web}}"),
        ];
        assert_eq!(
            select(&vpas, |vpa| vpa).and_then(|vpa| vpa.metadata.name.as_deref()),
            Some("b")
        );
    }

    #[test]
    fn a_vpa_in_mode_off_changes_pods_only_if_it_boosts() {
        let boost = "startupBoost: {cpu: {type: Factor, factor: 2}}";
        let boosted_container =
            format!("resourcePolicy: {{containerPolicies: [{{containerName: a, {boost}}}]}}");
        // mode, anything else of the spec, changes new pods, changes running pods (ours, upstream's)
        for (mode, more, new, running, upstream) in [
            ("Recreate", "", true, true, true),
            ("Initial", "", true, true, false),
            ("Off", "", false, false, false),
            ("Off", boost, true, true, true),
            ("Initial", boost, true, true, true),
            ("Off", &boosted_container, true, true, true),
        ] {
            let more = if more.is_empty() { String::new() } else { format!("{more}, ") };
            let vpa = vpa(&format!(
                "metadata: {{name: a}}, spec: {{updatePolicy: {{updateMode: {mode:?}}}, {more}targetRef: {{kind: Deployment, name: web}}}}"
            ));
            assert_eq!(changes_new_pods(&vpa), new, "{mode} {more}");
            assert_eq!(changes_running_pods(&vpa, Compat::Plimsoll), running, "{mode} {more}");
            assert_eq!(changes_running_pods(&vpa, Compat::Upstream), upstream, "{mode} {more}");
        }
    }
}
