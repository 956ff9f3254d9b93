//! Which workloads a survey covers.

use std::time::Duration;

use crate::cluster::cache::selector::Selector;

/// Which workloads a survey covers; by default all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SurveyScope {
    /// Names of namespaces, with `*` and `?` as wildcards; all namespaces if empty.
    pub namespaces: Vec<String>,
    /// Namespaces to leave out, in the same syntax.
    pub exclude_namespaces: Vec<String>,
    /// A selector of the labels of workloads, as kubectl takes it.
    pub label_selector: Option<String>,
    /// Kinds of workloads, in any case; all kinds if empty.
    pub kinds: Vec<String>,
    /// Which owners of pods are one workload.
    pub groups: OwnerGroups,
}

/// Which owners of pods are grouped into one workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerGroups {
    /// Whether Jobs without a CronJob are grouped whose names differ only by a generated part.
    pub job_names: bool,
    /// Jobs without a CronJob that have the same values of these labels.
    pub job_labels: Vec<String>,
    /// How far back such Jobs are looked for in series.
    pub job_window: Duration,
    /// What has the same topmost owner of one of these kinds, in any case.
    pub owner_kinds: Vec<String>,
}

impl OwnerGroups {
    pub fn is_by_kind(&self, kind: &str) -> bool {
        self.owner_kinds.iter().any(|own| own.eq_ignore_ascii_case(kind))
    }
}

/// The label selector of a scope is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid label selector: {0}")]
pub struct InvalidSelector(String);

impl SurveyScope {
    /// The parsed label selector; an error for users if it is invalid.
    pub fn selector(&self) -> Result<Selector, InvalidSelector> {
        let text = self.label_selector.as_deref().unwrap_or_default();
        Selector::parse(text).map_err(|why| InvalidSelector(why.to_string()))
    }

    pub fn includes_namespace(&self, namespace: &str) -> bool {
        let matches = |globs: &[String]| globs.iter().any(|glob| matches_glob(glob, namespace));
        (self.namespaces.is_empty() || matches(&self.namespaces))
            && !matches(&self.exclude_namespaces)
    }

    pub fn includes_kind(&self, kind: &str) -> bool {
        self.kinds.is_empty() || self.kinds.iter().any(|own| own.eq_ignore_ascii_case(kind))
    }

    /// Whether objects of a kind are needed: as workloads, or because they own the pods of workloads.
    pub(super) fn needs_kind(&self, kind: &str) -> bool {
        // Objects of any other kind may own objects of these.
        const BUILT_IN: [&str; 8] = [
            "DaemonSet",
            "Deployment",
            "ReplicaSet",
            "StatefulSet",
            "ReplicationController",
            "Job",
            "CronJob",
            "Pod",
        ];
        let is_built_in = |own: &String| BUILT_IN.iter().any(|one| own.eq_ignore_ascii_case(one));
        let has = |kind: &str| self.kinds.iter().any(|own| own.eq_ignore_ascii_case(kind));
        self.includes_kind(kind)
            || !self.kinds.iter().all(is_built_in)
            || match kind {
                "ReplicaSet" => has("Deployment"),
                "Job" => has("CronJob"),
                _ => false,
            }
    }

    /// The names in [`Self::namespaces`], without wildcards and without those that are left out.
    pub(super) fn plain_namespaces(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .namespaces
            .iter()
            .filter(|name| is_plain(name) && self.includes_namespace(name))
            .cloned()
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// The names in [`Self::namespaces`] that have wildcards.
    pub(super) fn namespace_globs(&self) -> impl Iterator<Item = &str> {
        self.namespaces.iter().map(String::as_str).filter(|name| !is_plain(name))
    }
}

fn is_plain(name: &str) -> bool {
    !name.contains(['*', '?'])
}

/// Whether a text matches a pattern in which `*` stands for any text and `?` for one character.
fn matches_glob(glob: &str, text: &str) -> bool {
    let (glob, text): (Vec<char>, Vec<char>) = (glob.chars().collect(), text.chars().collect());
    let (mut at_glob, mut at_text) = (0, 0);
    // Where to continue if the text after the last `*` does not match: that star takes one more character then.
    let mut last_star = None;
    while at_text < text.len() {
        match glob.get(at_glob) {
            Some('*') => {
                last_star = Some((at_glob, at_text));
                at_glob += 1;
            }
            Some(&sign) if sign == '?' || sign == text[at_text] => {
                at_glob += 1;
                at_text += 1;
            }
            _ => {
                let Some((star, taken)) = last_star else { return false };
                last_star = Some((star, taken + 1));
                (at_glob, at_text) = (star + 1, taken + 1);
            }
        }
    }
    glob[at_glob..].iter().all(|sign| *sign == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn namespaces_are_matched_by_name_or_with_wildcards() {
        for (glob, matching, other) in [
            ("shop", &["shop"][..], &["shop-2", "sho", ""][..]),
            ("team-*", &["team-", "team-a", "team-a-b"], &["team", "my-team-a"]),
            ("*", &["", "shop"], &[]),
            ("*-prod", &["a-prod", "a-prod-prod"], &["prod", "a-prod-x"]),
            ("t?-*-p", &["t1-x-p", "t1-a-b-p"], &["t-x-p", "t1-p"]),
            ("a*b*c", &["abc", "aabbcc", "axbxbxc"], &["ab", "acb"]),
        ] {
            for text in matching {
                assert!(matches_glob(glob, text), "{glob} {text}");
            }
            for text in other {
                assert!(!matches_glob(glob, text), "{glob} {text}");
            }
        }
        let scope = SurveyScope {
            namespaces: texts(&["shop", "team-*", "db"]),
            exclude_namespaces: texts(&["team-x", "d?"]),
            ..SurveyScope::default()
        };
        assert!(scope.includes_namespace("team-a"));
        for namespace in ["team-x", "db", "other"] {
            assert!(!scope.includes_namespace(namespace), "{namespace}");
        }
        assert_eq!(scope.plain_namespaces(), ["shop"]);
        assert_eq!(scope.namespace_globs().collect::<Vec<_>>(), ["team-*"]);
    }

    #[test]
    fn a_kind_is_needed_for_itself_and_for_what_it_owns() {
        let of = |kinds: &[&str]| SurveyScope { kinds: texts(kinds), ..SurveyScope::default() };
        for (kinds, kind, is_included, is_needed) in [
            (&[][..], "Job", true, true),
            (&["deployment"], "Deployment", true, true),
            (&["Deployment"], "ReplicaSet", false, true),
            (&["Deployment"], "Job", false, false),
            (&["CronJob"], "Job", false, true),
            (&["StatefulSet"], "ReplicaSet", false, false),
            (&["Rollout"], "ReplicaSet", false, true),
            (&["Rollout"], "Deployment", false, true),
        ] {
            let scope = of(kinds);
            assert_eq!(scope.includes_kind(kind), is_included, "{kinds:?} {kind}");
            assert_eq!(scope.needs_kind(kind), is_needed, "{kinds:?} {kind}");
        }
    }
}
