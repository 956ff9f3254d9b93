//! What the shape of a workload is, if it is not a plain one, and how it is known.

use super::{
    evidence::RunCounts,
    survey::{Container, RuntimeHint, Workload},
};

/// The annotation of a workload with its shape.
pub const SHAPE_ANNOTATION: &str = "plimsoll.dev/shape";
/// The longest shape that an annotation may have.
const MAX_ANNOTATION: usize = 40;

/// The shape and how it is known, such as `cronjob by owner`. `group_label` is the label of node groups with
/// targets of their own.
pub fn shape_of(
    workload: &Workload,
    runs: Option<RunCounts>,
    group_label: Option<&str>,
) -> Option<String> {
    let annotation = workload.annotations.get(SHAPE_ANNOTATION);
    let is_word = |shape: &str| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
        !shape.is_empty() && shape.len() <= MAX_ANNOTATION && shape.chars().all(is_allowed)
    };
    if let Some(shape) = annotation.filter(|shape| is_word(shape)) {
        return Some(format!("{shape} by {SHAPE_ANNOTATION}"));
    }
    if runs.is_some() {
        let by = workload.group.as_ref().map_or("owner", |group| &group.by);
        return Some(format!("{} by {by}", workload.kind.to_lowercase()));
    }
    if let Some(label) = group_label {
        return Some(format!("node groups by {label}"));
    }
    workload.containers.iter().find_map(runtime_shape)
}

fn runtime_shape(container: &Container) -> Option<String> {
    match container.runtime.as_deref()? {
        RuntimeHint::Jvm { known_by, .. } => Some(format!("jvm by {known_by}")),
        RuntimeHint::Go { known_by, .. } => Some(format!("go by {known_by}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_said_with_how_they_are_known() {
        let runs = Some(RunCounts { total: 9, seen: 9, ..RunCounts::default() });
        let jvm = Container {
            runtime: Some(Box::new(RuntimeHint::Jvm {
                known_by: "-XX:MaxRAMPercentage=75".to_owned(),
                max_heap: None,
                max_heap_percent: Some(75),
            })),
            ..Container::default()
        };
        let go = Container {
            runtime: Some(Box::new(RuntimeHint::Go {
                known_by: "GOMEMLIMIT=1GiB".to_owned(),
                memory_limit: None,
                follows_limit: false,
            })),
            ..Container::default()
        };
        for (annotation, runs, label, containers, expected) in [
            (None, None, None, vec![Container::default()], None),
            (None, runs, None, vec![jvm.clone()], Some("cronjob by owner")),
            (None, None, Some("agentpool"), vec![], Some("node groups by agentpool")),
            (
                None,
                None,
                None,
                vec![Container::default(), jvm],
                Some("jvm by -XX:MaxRAMPercentage=75"),
            ),
            (None, None, None, vec![go], Some("go by GOMEMLIMIT=1GiB")),
            (Some("stateful"), runs, None, vec![], Some("stateful by plimsoll.dev/shape")),
            (Some("two\nlines"), None, None, vec![], None),
            (Some(""), None, None, vec![], None),
        ] {
            let annotations =
                annotation.map(|shape: &str| (SHAPE_ANNOTATION, shape)).into_iter().collect();
            let containers = containers.into();
            let workload =
                Workload { kind: "CronJob".into(), annotations, containers, ..Workload::default() };
            assert_eq!(shape_of(&workload, runs, label).as_deref(), expected);
        }
    }
}
