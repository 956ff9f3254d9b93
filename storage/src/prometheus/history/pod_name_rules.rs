//! Matches pods to workloads by name: controllers generate names by rules that have not changed in years.
//!
//! | kind | names of its pods |
//! |---|---|
//! | Deployment, Rollout | `NAME-HASH-RANDOM`, the hash by its ten characters |
//! | ReplicaSet, ReplicationController, DaemonSet, CloneSet, Job | `NAME-RANDOM`; of an indexed Job `NAME-INDEX-RANDOM` |
//! | StatefulSet | `NAME-INDEX` |
//! | CronJob | `NAME-TIME-RANDOM`, as the Jobs that it makes |
//! | DeploymentConfig | `NAME-INDEX-RANDOM` |
//! | Pod | `NAME` |
//! | anything else | as any of these, except Pod and CronJob |
//!
//! Before the random part a generated name is truncated to 58 characters. The character sets are those of the
//! controllers, so `web-api-7d5f9c4b6d-x2x4z` is a pod of `web-api` and never of `web`. Owners from kube-state-metrics
//! take precedence over names. Existing pods are queried by their own names ([`super::live_pods`]).

use std::fmt;

use crate::prometheus::selector::Pattern;

/// Maximum length of a generated name before its random part.
const LONGEST_BASE: usize = 58;
/// Lengths of a hash: a 32-bit number in decimal with safe characters, so usually ten.
const HASH: (usize, usize) = (5, 10);
/// Lengths of a time: minutes since 1970, or seconds before Kubernetes 1.21.
const TIME: (usize, usize) = (8, 10);
const INDEX: (usize, usize) = (1, 10);

/// A workload as snapshots name it: `apps/Deployment/web`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerRef {
    pub kind: Box<str>,
    pub name: Box<str>,
}

/// A pattern of pod names: literal texts and character classes, in order.
type NamePattern = Vec<NamePart>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum NamePart {
    Text(String),
    Characters(CharacterClass, (usize, usize)),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CharacterClass {
    /// Pod template hash: decimal digits, encoded as safe characters.
    Hash,
    /// Random suffix: no vowels and no similar characters, so that it forms no bad words.
    Random,
    Digit,
}

impl CharacterClass {
    fn has(self, byte: u8) -> bool {
        match self {
            Self::Hash => b"456789bcdf".contains(&byte),
            Self::Random => b"bcdfghjklmnpqrstvwxz2456789".contains(&byte),
            Self::Digit => byte.is_ascii_digit(),
        }
    }

    fn pattern(self) -> &'static str {
        match self {
            Self::Hash => "[4-9b-df]",
            Self::Random => "[b-df-hj-np-tv-xz24-9]",
            Self::Digit => "[0-9]",
        }
    }
}

impl OwnerRef {
    /// Parses a workload. `None` if it has no kind.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.rsplitn(3, '/');
        let (name, kind) = (parts.next()?, parts.next()?);
        (!name.is_empty() && !kind.is_empty())
            .then(|| Self { kind: kind.into(), name: name.into() })
    }

    /// A regular expression for the names of its pods.
    pub fn pattern(&self) -> Pattern {
        Pattern::any_of(self.shapes().iter().map(|shape| pattern(shape)))
    }

    /// A regular expression for all names with the prefix of its pods, for workloads with unexpected pod names.
    pub fn prefix_pattern(&self) -> Pattern {
        Pattern::literal(self.prefix()).then(&Pattern::regex(".*"))
    }

    pub fn matches_prefix(&self, pod: &str) -> bool {
        pod.starts_with(self.prefix())
    }

    fn prefix(&self) -> &str {
        &self.name[..self.name.floor_char_boundary(LONGEST_BASE)]
    }

    pub fn matches(&self, pod: &str) -> bool {
        // Rejects nearly all other names cheaply.
        self.matches_prefix(pod)
            && self.shapes().iter().any(|shape| parts_match(shape, pod.as_bytes()))
    }

    /// Whether an intermediate owner has a name that this workload would generate, such as a ReplicaSet of a Deployment.
    pub fn generates_name(&self, kind: &str, name: &str) -> bool {
        let (class, lengths) = match (&*self.kind, kind) {
            ("Deployment" | "Rollout", "ReplicaSet") => (CharacterClass::Hash, HASH),
            ("CronJob", "Job") => (CharacterClass::Digit, TIME),
            ("DeploymentConfig", "ReplicationController") => (CharacterClass::Digit, INDEX),
            _ => return false,
        };
        parts_match(&self.suffixed(class, lengths), name.as_bytes())
    }

    /// The workload whose pods would be named like this one; the pod itself if no rule matches. DaemonSets, ReplicaSets and
    /// Jobs name their pods by the same rule, so any of these becomes a DaemonSet.
    pub fn from_pod_name(pod: &str) -> Self {
        let of_kind = |kind: &str, name: &str| Self { kind: kind.into(), name: name.into() };
        if let Some(base) = split_suffix(pod, CharacterClass::Random, (5, 5)) {
            if let Some(name) = split_suffix(base, CharacterClass::Hash, HASH) {
                return of_kind("Deployment", name);
            }
            return match split_suffix(base, CharacterClass::Digit, TIME) {
                Some(name) => of_kind("CronJob", name),
                None => of_kind("DaemonSet", base),
            };
        }
        match split_suffix(pod, CharacterClass::Digit, INDEX) {
            Some(name) => of_kind("StatefulSet", name),
            None => of_kind("Pod", pod),
        }
    }

    /// The workload that would generate an object with this name, such as the Deployment of a ReplicaSet. The inverse of
    /// [`Self::generates_name`], for servers that do not tell the owner.
    pub fn generator(&self) -> Option<Self> {
        let (class, lengths, kind) = match &*self.kind {
            "ReplicaSet" => (CharacterClass::Hash, HASH, "Deployment"),
            "Job" => (CharacterClass::Digit, TIME, "CronJob"),
            _ => return None,
        };
        let name = split_suffix(&self.name, class, lengths)?;
        Some(Self { kind: kind.into(), name: name.into() })
    }

    fn suffixed(&self, class: CharacterClass, lengths: (usize, usize)) -> NamePattern {
        vec![NamePart::Text(format!("{}-", self.name)), NamePart::Characters(class, lengths)]
    }

    pub fn has_known_naming(&self) -> bool {
        matches!(
            &*self.kind,
            "Deployment"
                | "Rollout"
                | "ReplicaSet"
                | "ReplicationController"
                | "DaemonSet"
                | "CloneSet"
                | "Job"
                | "StatefulSet"
                | "CronJob"
                | "DeploymentConfig"
                | "Pod"
        )
    }

    fn shapes(&self) -> Vec<NamePattern> {
        let name = &*self.name;
        let generated = |middle| generated(name, middle);
        let numbered = self.suffixed(CharacterClass::Digit, INDEX);
        let hash = Some((CharacterClass::Hash, HASH));
        let index = Some((CharacterClass::Digit, INDEX));
        match &*self.kind {
            "Deployment" | "Rollout" => generated(hash),
            "ReplicaSet" | "ReplicationController" | "DaemonSet" | "CloneSet" => generated(None),
            "Job" => [generated(None), generated(index)].concat(),
            "StatefulSet" => vec![numbered],
            "CronJob" => generated(Some((CharacterClass::Digit, TIME))),
            "DeploymentConfig" => generated(index),
            "Pod" => vec![vec![NamePart::Text(name.to_owned())]],
            _ => [generated(None), generated(hash), vec![numbered]].concat(),
        }
    }
}

impl fmt::Display for OwnerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// A name before a dash and a suffix of this class.
fn split_suffix(name: &str, class: CharacterClass, (least, most): (usize, usize)) -> Option<&str> {
    let (base, suffix) = name.rsplit_once('-')?;
    let is_suffix = (least..=most).contains(&suffix.len())
        && suffix.bytes().all(|byte| class.has(byte))
        && !base.is_empty();
    is_suffix.then_some(base)
}

/// Patterns of generated names: `NAME-` or `NAME-MIDDLE-`, and a random suffix.
fn generated(name: &str, middle: Option<(CharacterClass, (usize, usize))>) -> Vec<NamePattern> {
    let random = || NamePart::Characters(CharacterClass::Random, (5, 5));
    let text = |text: &str| NamePart::Text(text.to_owned());
    let base = format!("{name}-");
    let truncated = &base[..base.floor_char_boundary(LONGEST_BASE)];
    let Some((class, (min, max))) = middle else {
        return vec![vec![text(truncated), random()]];
    };
    let mut shapes = Vec::new();
    // Not truncated: name, dash, characters, dash.
    let available = LONGEST_BASE.saturating_sub(name.len() + 2);
    if available >= min {
        let middle = NamePart::Characters(class, (min, max.min(available)));
        shapes.push(vec![text(&base), middle, text("-"), random()]);
    }
    // Truncated in the middle part, or in the name itself.
    if available < max {
        let left = LONGEST_BASE.saturating_sub(base.len()).min(max);
        let middle = (left > 0).then_some(NamePart::Characters(class, (left, left)));
        shapes
            .push([Some(text(truncated)), middle, Some(random())].into_iter().flatten().collect());
    }
    shapes
}

fn pattern(parts: &[NamePart]) -> Pattern {
    parts.iter().fold(Pattern::literal(""), |pattern, part| {
        pattern.then(&match part {
            NamePart::Text(text) => Pattern::literal(text),
            NamePart::Characters(class, (least, most)) if least == most => {
                Pattern::regex(format!("{}{{{least}}}", class.pattern()))
            }
            NamePart::Characters(class, (least, most)) => {
                Pattern::regex(format!("{}{{{least},{most}}}", class.pattern()))
            }
        })
    })
}

/// Tries every length of a part: at most ten, and at most two parts vary.
fn parts_match(pieces: &[NamePart], name: &[u8]) -> bool {
    let Some((first, rest)) = pieces.split_first() else { return name.is_empty() };
    match first {
        NamePart::Text(text) => {
            name.strip_prefix(text.as_bytes()).is_some_and(|name| parts_match(rest, name))
        }
        NamePart::Characters(class, (least, most)) => (*least..=*most).any(|length| {
            name.split_at_checked(length).is_some_and(|(part, name)| {
                part.iter().all(|byte| class.has(*byte)) && parts_match(rest, name)
            })
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(text: &str) -> OwnerRef {
        OwnerRef::parse(text).expect("an owner")
    }

    #[test]
    fn a_workload_owns_the_pods_that_its_controller_would_name_this_way() {
        let long = "a".repeat(52);
        let longer = "b".repeat(60);
        let cut_hash = format!("{long}-7d5f9x2x4z");
        let cut_name = format!("{}x2x4z", &longer[..58]);
        let long_owner = format!("apps/Deployment/{long}");
        let longer_owner = format!("apps/Deployment/{longer}");
        for (text, own, others) in [
            (
                "apps/Deployment/web",
                vec!["web-7d5f9c4b6d-x2x4z", "web-5d4f6-zzzzz"],
                vec![
                    "web",
                    "web-0",
                    "web-x2x4z",
                    "web-api-7d5f9c4b6d-x2x4z",
                    "web-7d5f9c4b6d-x2x4",
                    "web-7d5f9c4b6d-x2xa4",
                    "web-7d5f9c4b6dd-x2x4z",
                    "web-7d5f9c4b6d-x2x4z-1",
                    "my-web-7d5f9c4b6d-x2x4z",
                    "web-hhhhhhhhhh-x2x4z",
                ],
            ),
            ("argoproj.io/Rollout/web", vec!["web-7d5f9c4b6d-x2x4z"], vec!["web-x2x4z"]),
            (
                "apps/StatefulSet/db",
                vec!["db-0", "db-12"],
                vec!["db", "db-a", "db-0-0", "db-x2x4z"],
            ),
            ("apps/DaemonSet/log", vec!["log-x2x4z"], vec!["log-0", "log-7d5f9c4b6d-x2x4z"]),
            ("batch/Job/once", vec!["once-x2x4z", "once-3-x2x4z"], vec!["once", "once-0"]),
            (
                "batch/CronJob/night",
                vec!["night-28901234-x2x4z", "night-1634567890-x2x4z"],
                vec!["night-x2x4z", "night-1-x2x4z", "night-manual-x2x4z"],
            ),
            ("apps.kruise.io/CloneSet/web", vec!["web-x2x4z"], vec!["web-0"]),
            ("core/ReplicationController/old", vec!["old-x2x4z"], vec!["old"]),
            ("core/Pod/lone", vec!["lone"], vec!["lone-0"]),
            (
                "example.com/Thing/web",
                vec!["web-0", "web-x2x4z", "web-7d5f9c4b6d-x2x4z"],
                vec!["web", "web-api-0", "web-api-x2x4z"],
            ),
            (&long_owner, vec![&cut_hash], vec!["web"]),
            (&longer_owner, vec![&cut_name], vec!["web"]),
        ] {
            let owner = owner(text);
            for pod in own {
                assert!(owner.matches(pod), "{owner}: {pod}");
            }
            for pod in others {
                assert!(!owner.matches(pod), "{owner}: {pod}");
            }
        }
    }

    #[test]
    fn the_pod_name_pattern_of_a_query_matches_the_same_names() {
        for (text, pattern) in [
            ("apps/Deployment/web", r"web-[4-9b-df]{5,10}-[b-df-hj-np-tv-xz24-9]{5}"),
            ("apps/StatefulSet/db.1", r"db\.1-[0-9]{1,10}"),
            ("apps/DaemonSet/log", "log-[b-df-hj-np-tv-xz24-9]{5}"),
        ] {
            assert_eq!(owner(text).pattern().as_str(), pattern);
        }
    }

    #[test]
    fn a_workload_is_recognized_by_the_name_of_a_pod_alone() {
        for (pod, expected) in [
            ("web-7d5f9c4b6d-x2x4z", "Deployment/web"),
            ("web-api-7d5f9c4b6d-x2x4z", "Deployment/web-api"),
            ("night-28901234-x2x4z", "CronJob/night"),
            ("db-0", "StatefulSet/db"),
            ("log-x2x4z", "DaemonSet/log"),
            ("log-api-x2x4z", "DaemonSet/log-api"),
            ("kube-apiserver-node", "Pod/kube-apiserver-node"),
            ("lone", "Pod/lone"),
            ("-0", "Pod/-0"),
        ] {
            let inferred = OwnerRef::from_pod_name(pod);
            assert_eq!(inferred.to_string(), expected, "{pod}");
            assert!(inferred.matches(pod), "{pod}");
        }
        let generator = |text: &str| owner(text).generator().map(|owner| owner.to_string());
        assert_eq!(generator("ReplicaSet/web-7d5f9c4b6d").as_deref(), Some("Deployment/web"));
        assert_eq!(generator("Job/night-28901234").as_deref(), Some("CronJob/night"));
        for text in ["ReplicaSet/web", "Job/once", "StatefulSet/web-7d5f9c4b6d"] {
            assert_eq!(generator(text), None, "{text}");
        }
    }

    #[test]
    fn intermediate_owners_are_recognized_by_name() {
        assert!(owner("apps/Deployment/web").generates_name("ReplicaSet", "web-7d5f9c4b6d"));
        assert!(!owner("apps/Deployment/web").generates_name("ReplicaSet", "web-api-7d5f9c4b6d"));
        assert!(!owner("apps/StatefulSet/web").generates_name("ReplicaSet", "web-7d5f9c4b6d"));
        assert!(owner("batch/CronJob/night").generates_name("Job", "night-28901234"));
        assert_eq!(OwnerRef::parse("web"), None);
        assert_eq!(owner("Deployment/web").to_string(), "Deployment/web");
    }
}
