//! Which pods a workload has, told by their names: controllers make them up by rules that have not changed in years.
//!
//! | kind | names of its pods |
//! |---|---|
//! | Deployment, Rollout | `NAME-HASH-RANDOM`, the hash by its ten characters |
//! | ReplicaSet, ReplicationController, DaemonSet, CloneSet, Job | `NAME-RANDOM`; of an indexed Job `NAME-INDEX-RANDOM` |
//! | StatefulSet | `NAME-INDEX` |
//! | CronJob | `NAME-TIME-RANDOM`, as the Jobs that it makes |
//! | DeploymentConfig | `NAME-INDEX-RANDOM` |
//! | Pod | `NAME` |
//! | anything else | as any of these, save Pod and CronJob |
//!
//! Before the random part a generated name has at most 58 characters, and what is longer is cut there. Alphabets are
//! those of the controllers, so `web-api-7d5f9c4b6d-x2x4z` is a pod of `web-api` and never one of `web`. Where
//! kube-state-metrics says who owns a pod, its word goes before all this. Pods that are there now are asked for by their own
//! names, whatever those look like ([`super::live`]).

use std::{fmt, fmt::Write as _};

use crate::prometheus::selector::Pattern;

/// What a generated name has at most before its random part.
const LONGEST_BASE: usize = 58;
/// Lengths of a hash: ten decimal digits of 32 bits in other characters, rarely fewer.
const HASH: (usize, usize) = (5, 10);
/// Lengths of a time: minutes since 1970, or seconds before Kubernetes 1.21.
const TIME: (usize, usize) = (8, 10);
/// Lengths of an index.
const INDEX: (usize, usize) = (1, 10);

/// A workload as snapshots name it: `apps/Deployment/web`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerRef {
    /// Its kind.
    pub kind: Box<str>,
    /// Its name.
    pub name: Box<str>,
}

/// How names of pods look: texts and classes of characters, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamePattern(Vec<NamePart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum NamePart {
    Text(String),
    Characters(CharacterClass, (usize, usize)),
}

/// Characters of one part of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CharacterClass {
    /// Of the hash of a template: decimal digits, each as another character of the random ones.
    Hash,
    /// Of what is random: no vowels and nothing that looks like one, so that it says nothing rude.
    Random,
    /// Decimal digits.
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
    /// Reads one. `None` for what names no kind.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.rsplitn(3, '/');
        let (name, kind) = (parts.next()?, parts.next()?);
        (!name.is_empty() && !kind.is_empty())
            .then(|| Self { kind: kind.into(), name: name.into() })
    }

    /// The names of its pods, as a server can look for them.
    pub fn pattern(&self) -> Pattern {
        Pattern::any_of(self.shapes().iter().map(NamePattern::pattern))
    }

    /// All names that begin as those of its pods do: for workloads whose pods have other names than expected.
    pub fn prefix_pattern(&self) -> Pattern {
        let base = &self.name[..cut(&self.name, LONGEST_BASE)];
        Pattern::literal(base).then(&Pattern::regex(".*"))
    }

    /// Whether a name begins as those of its pods do.
    pub fn matches_prefix(&self, pod: &str) -> bool {
        pod.starts_with(&self.name[..cut(&self.name, LONGEST_BASE)])
    }

    /// Whether a pod's name is as those of its pods.
    pub fn matches(&self, pod: &str) -> bool {
        // Nearly all that do not fit end here.
        self.matches_prefix(pod) && self.shapes().iter().any(|shape| shape.matches(pod))
    }

    /// Whether something between it and its pods is named as it would name that: a ReplicaSet of a Deployment.
    pub fn generates_name(&self, kind: &str, name: &str) -> bool {
        let middle = match (&*self.kind, kind) {
            ("Deployment" | "Rollout", "ReplicaSet") => (CharacterClass::Hash, HASH),
            ("CronJob", "Job") => (CharacterClass::Digit, TIME),
            ("DeploymentConfig", "ReplicationController") => (CharacterClass::Digit, INDEX),
            _ => return false,
        };
        let shape = NamePattern(vec![
            NamePart::Text(format!("{}-", self.name)),
            NamePart::Characters(middle.0, middle.1),
        ]);
        shape.matches(name)
    }

    /// Whether its kind is one whose rules are known.
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
        let numbered = NamePattern(vec![
            NamePart::Text(format!("{name}-")),
            NamePart::Characters(CharacterClass::Digit, INDEX),
        ]);
        let hash = Some((CharacterClass::Hash, HASH));
        let index = Some((CharacterClass::Digit, INDEX));
        match &*self.kind {
            "Deployment" | "Rollout" => generated(hash),
            "ReplicaSet" | "ReplicationController" | "DaemonSet" | "CloneSet" => generated(None),
            "Job" => [generated(None), generated(index)].concat(),
            "StatefulSet" => vec![numbered],
            "CronJob" => generated(Some((CharacterClass::Digit, TIME))),
            "DeploymentConfig" => generated(index),
            "Pod" => vec![NamePattern(vec![NamePart::Text(name.to_owned())])],
            _ => [generated(None), generated(hash), vec![numbered]].concat(),
        }
    }
}

impl fmt::Display for OwnerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// Names that the API server made unique: `NAME-` or `NAME-MIDDLE-`, and something random.
fn generated(name: &str, middle: Option<(CharacterClass, (usize, usize))>) -> Vec<NamePattern> {
    let random = || NamePart::Characters(CharacterClass::Random, (5, 5));
    let text = |text: &str| NamePart::Text(text.to_owned());
    let length = name.len();
    let Some((class, (least, most))) = middle else {
        let base = format!("{name}-");
        return vec![NamePattern(vec![text(&base[..cut(&base, LONGEST_BASE)]), random()])];
    };
    let mut shapes = Vec::new();
    // Whole: name, dash, so many characters, dash.
    let room = LONGEST_BASE.saturating_sub(length + 2);
    if room >= least {
        let middle = NamePart::Characters(class, (least, most.min(room)));
        shapes.push(NamePattern(vec![text(&format!("{name}-")), middle, text("-"), random()]));
    }
    // Cut: in the middle, or in the name itself.
    if room < most {
        let base = format!("{name}-");
        let left = LONGEST_BASE.saturating_sub(base.len());
        let mut pieces = vec![text(&base[..cut(&base, LONGEST_BASE)])];
        if left > 0 {
            pieces.push(NamePart::Characters(class, (left.min(most), left.min(most))));
        }
        pieces.push(random());
        shapes.push(NamePattern(pieces));
    }
    shapes
}

/// Where a text is cut that may have so many bytes. Names have no other than ASCII; whatever comes is not split.
fn cut(text: &str, most: usize) -> usize {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end
}

impl NamePattern {
    fn pattern(&self) -> Pattern {
        let mut pattern = Pattern::literal("");
        for piece in &self.0 {
            pattern = match piece {
                NamePart::Text(text) => pattern.then(&Pattern::literal(text)),
                NamePart::Characters(class, (least, most)) => {
                    let mut text = class.pattern().to_owned();
                    // Writing to a string does not fail.
                    let _ = if least == most {
                        write!(text, "{{{least}}}")
                    } else {
                        write!(text, "{{{least},{most}}}")
                    };
                    pattern.then(&Pattern::regex(text))
                }
            };
        }
        pattern
    }

    fn matches(&self, name: &str) -> bool {
        parts_match(&self.0, name.as_bytes())
    }
}

/// Tries every length of a part: there are ten at most, and no more than two parts that vary.
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
    fn a_workload_has_the_pods_that_its_controller_would_name_so_and_no_others() {
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
    fn a_server_is_asked_for_the_same_names() {
        for (text, pattern) in [
            ("apps/Deployment/web", r"web-[4-9b-df]{5,10}-[b-df-hj-np-tv-xz24-9]{5}"),
            ("apps/StatefulSet/db.1", r"db\.1-[0-9]{1,10}"),
            ("apps/DaemonSet/log", "log-[b-df-hj-np-tv-xz24-9]{5}"),
        ] {
            assert_eq!(owner(text).pattern().as_str(), pattern);
        }
    }

    #[test]
    fn what_stands_between_is_recognised() {
        assert!(owner("apps/Deployment/web").generates_name("ReplicaSet", "web-7d5f9c4b6d"));
        assert!(!owner("apps/Deployment/web").generates_name("ReplicaSet", "web-api-7d5f9c4b6d"));
        assert!(!owner("apps/StatefulSet/web").generates_name("ReplicaSet", "web-7d5f9c4b6d"));
        assert!(owner("batch/CronJob/night").generates_name("Job", "night-28901234"));
        assert_eq!(OwnerRef::parse("web"), None);
        assert_eq!(owner("Deployment/web").to_string(), "Deployment/web");
    }
}
