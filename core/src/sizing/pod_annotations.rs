//! Pod annotations that the admission controller writes and the updater reads, in upstream's format.

use super::pod::Pod;

/// What the admission controller changed, in human-readable form.
pub const UPDATES: &str = "vpaUpdates";

/// The containers that the pod had at admission.
pub const OBSERVED: &str = "vpaObservedContainers";

/// Set when the pod was resized in place.
pub const IN_PLACE: &str = "vpaInPlaceUpdated";

/// Prefix, followed by a container name: the resources before its boost, as JSON.
pub const BOOST: &str = "vpaCpuStartupBoost/";

/// The containers that were present at admission; `None` without a valid annotation, which upstream treats as all
/// containers.
pub fn observed_containers(pod: &Pod) -> Option<Vec<&str>> {
    parse_observed_containers(pod.annotation(OBSERVED)?)
}

/// Parses a value of [`OBSERVED`]: valid container names, separated by a comma and a space. An empty value is an empty
/// list.
pub fn parse_observed_containers(value: &str) -> Option<Vec<&str>> {
    if value.is_empty() {
        return Some(Vec::new());
    }
    let names: Vec<&str> = value.split(", ").collect();
    names.iter().all(|name| is_dns_label(name)).then_some(names)
}

pub(super) fn is_dns_label(name: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let bytes = name.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(|byte| inside(*byte))
        && !name.starts_with('-')
        && !name.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Golden vectors 302 and 303.
    #[test]
    fn only_lists_as_upstream_writes_them_are_parsed() {
        assert_eq!(
            parse_observed_containers("test1, test2, test3"),
            Some(vec!["test1", "test2", "test3"])
        );
        assert_eq!(parse_observed_containers(""), Some(Vec::new()));
        for bad in ["test1,test2", "test1, ", "test1, Test2", "-a", "a-, b", "a_b"] {
            assert_eq!(parse_observed_containers(bad), None, "{bad}");
        }
    }
}
