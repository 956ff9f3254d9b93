//! The requests in a pod template, in a compact form, because many are cached.

use super::Resource;

/// Separates containers: no name and no number contains it.
const CONTAINER_SEPARATOR: char = ';';
/// Separates the fields of a container.
const FIELD_SEPARATOR: char = ':';

/// The requests of the containers in a pod template that run as long as the pod: main containers and sidecars.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateRequests(Vec<ContainerRequests>);

/// The requests of one container, in milli-units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerRequests {
    pub name: Box<str>,
    pub cpu: Option<i64>,
    pub memory: Option<i64>,
}

/// What is known about the pod template of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Template {
    Known(TemplateRequests),
    /// They will be known once the target is listed.
    NotListed,
    /// The template of the target is not read: its kind is not built in, or requests are at pod level.
    Unsupported,
}

impl FromIterator<ContainerRequests> for TemplateRequests {
    fn from_iter<I: IntoIterator<Item = ContainerRequests>>(containers: I) -> Self {
        Self(containers.into_iter().collect())
    }
}

impl TemplateRequests {
    /// The request that a metric of this container, or of all containers, is relative to. `None` if one of them has none.
    pub fn request(&self, resource: Resource, container: Option<&str>) -> Option<i64> {
        let mut counted =
            self.0.iter().filter(|one| container.is_none_or(|name| name == &*one.name)).map(
                |one| match resource {
                    Resource::Cpu => one.cpu,
                    Resource::Memory => one.memory,
                },
            );
        let first = counted.next()??;
        counted.try_fold(first, |sum, request| Some(sum.saturating_add(request?)))
    }

    /// Whether the template has a container that runs as long as the pod.
    pub fn has_container(&self, name: &str) -> bool {
        self.0.iter().any(|one| *one.name == *name)
    }

    pub fn to_text(&self) -> String {
        let amount = |milli: Option<i64>| milli.map(|milli| milli.to_string()).unwrap_or_default();
        let container = |one: &ContainerRequests| {
            let (cpu, memory) = (amount(one.cpu), amount(one.memory));
            format!("{}{FIELD_SEPARATOR}{cpu}{FIELD_SEPARATOR}{memory}", one.name)
        };
        let containers: Vec<_> = self.0.iter().map(container).collect();
        containers.join(&CONTAINER_SEPARATOR.to_string())
    }

    /// Reads what [`Self::to_text`] has written; `None` if it is empty.
    pub fn parse(text: &str) -> Option<Self> {
        let container = |text: &str| {
            let mut fields = text.split(FIELD_SEPARATOR);
            let name = fields.next().unwrap_or_default().into();
            let mut amount = || fields.next().and_then(|milli| milli.parse().ok());
            ContainerRequests { name, cpu: amount(), memory: amount() }
        };
        let is_known = !text.is_empty();
        is_known.then(|| text.split(CONTAINER_SEPARATOR).map(container).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(containers: &[(&str, Option<i64>, Option<i64>)]) -> TemplateRequests {
        let container = |one: &(&str, Option<i64>, Option<i64>)| ContainerRequests {
            name: one.0.into(),
            cpu: one.1,
            memory: one.2,
        };
        containers.iter().map(container).collect()
    }

    #[test]
    fn a_request_is_known_only_if_every_container_that_counts_has_one() {
        let template = requests(&[("app", Some(400), Some(1_000)), ("proxy", Some(100), None)]);
        for (resource, container, expected) in [
            (Resource::Cpu, None, Some(500)),
            (Resource::Cpu, Some("app"), Some(400)),
            (Resource::Cpu, Some("db"), None),
            (Resource::Memory, None, None),
            (Resource::Memory, Some("app"), Some(1_000)),
            (Resource::Memory, Some("proxy"), None),
        ] {
            assert_eq!(template.request(resource, container), expected, "{resource} {container:?}");
        }
        assert_eq!(TemplateRequests::default().request(Resource::Cpu, None), None);
    }

    #[test]
    fn the_text_keeps_everything() {
        for template in [
            requests(&[("app", None, None)]),
            requests(&[("app", Some(400), None), ("proxy", None, Some(64))]),
        ] {
            assert_eq!(TemplateRequests::parse(&template.to_text()), Some(template));
        }
        assert_eq!(TemplateRequests::parse(&TemplateRequests::default().to_text()), None);
    }
}
