//! Which containers of a pod count: those that the admission controller saw, and not what was injected later.

use crate::sizing::{self, annotations};

/// The containers that count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// All: nothing is said, or nothing that can be read.
    All,
    /// These.
    Only(Vec<Box<str>>),
}

impl Observed {
    /// What a pod says, and those that were injected later and are to be sized all the same.
    pub fn of(pod: &sizing::Pod, injected: &[Box<str>]) -> Self {
        annotations::seen(pod).map_or(Self::All, |names| {
            Self::Only(names.into_iter().map(Into::into).chain(injected.iter().cloned()).collect())
        })
    }

    /// Whether a container counts.
    pub fn has(&self, container: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.iter().any(|name| **name == *container),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: Option<&str>) -> Observed {
        let annotations =
            text.map(|text| [(annotations::OBSERVED.to_owned(), text.to_owned())].into());
        Observed::of(&sizing::Pod { annotations, ..sizing::Pod::default() }, &[])
    }

    #[test]
    fn what_cannot_be_read_lists_all_and_what_is_empty_lists_none() {
        let only = |names: &[&str]| Observed::Only(names.iter().map(|&name| name.into()).collect());
        for (text, expected) in [
            (None, Observed::All),
            (Some(""), only(&[])),
            (Some("app"), only(&["app"])),
            (Some("app, side-car"), only(&["app", "side-car"])),
            (Some("app,side-car"), Observed::All),
            (Some("App"), Observed::All),
            (Some("app, "), Observed::All),
        ] {
            assert_eq!(of(text), expected, "{text:?}");
        }
        let pod = sizing::Pod {
            annotations: Some([(annotations::OBSERVED.to_owned(), "app".to_owned())].into()),
            ..sizing::Pod::default()
        };
        assert!(Observed::of(&pod, &["proxy".into()]).has("proxy"));
        assert!(of(Some("app")).has("app") && !of(Some("app")).has("side-car"));
    }
}
