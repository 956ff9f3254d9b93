//! The containers of a pod that the updater considers: those that the pod had at admission, not those injected later.

use crate::sizing::{self, pod_annotations};

/// The containers that the updater considers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedContainers {
    /// All containers: the annotation is missing or malformed.
    All,
    Only(Vec<Box<str>>),
}

impl ObservedContainers {
    /// Reads the annotation of a pod, and adds the injected containers that are sized nevertheless.
    pub fn from_pod(pod: &sizing::Pod, injected: &[Box<str>]) -> Self {
        pod_annotations::observed_containers(pod).map_or(Self::All, |names| {
            Self::Only(names.into_iter().map(Into::into).chain(injected.iter().cloned()).collect())
        })
    }

    /// Whether the updater considers a container.
    pub fn contains(&self, container: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.iter().any(|name| **name == *container),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(text: Option<&str>) -> ObservedContainers {
        let annotations =
            text.map(|text| [(pod_annotations::OBSERVED.to_owned(), text.to_owned())].into());
        ObservedContainers::from_pod(&sizing::Pod { annotations, ..sizing::Pod::default() }, &[])
    }

    #[test]
    fn an_invalid_annotation_means_all_containers_and_an_empty_one_none() {
        let only = |names: &[&str]| {
            ObservedContainers::Only(names.iter().map(|&name| name.into()).collect())
        };
        for (text, expected) in [
            (None, ObservedContainers::All),
            (Some(""), only(&[])),
            (Some("app"), only(&["app"])),
            (Some("app, side-car"), only(&["app", "side-car"])),
            (Some("app,side-car"), ObservedContainers::All),
            (Some("App"), ObservedContainers::All),
            (Some("app, "), ObservedContainers::All),
        ] {
            assert_eq!(observed(text), expected, "{text:?}");
        }
        let pod = sizing::Pod {
            annotations: Some([(pod_annotations::OBSERVED.to_owned(), "app".to_owned())].into()),
            ..sizing::Pod::default()
        };
        assert!(ObservedContainers::from_pod(&pod, &["proxy".into()]).contains("proxy"));
        let only_app = observed(Some("app"));
        assert!(only_app.contains("app") && !only_app.contains("side-car"));
    }
}
