//! Annotations of pods that admission writes and the updater reads, exactly as upstream writes them.

use super::pod::Pod;

/// What admission changed, for people.
pub const UPDATES: &str = "vpaUpdates";

/// The containers that the pod had when admission saw it.
pub const OBSERVED: &str = "vpaObservedContainers";

/// That the pod was resized in place.
pub const IN_PLACE: &str = "vpaInPlaceUpdated";

/// What a boosted container had before, as JSON; the container's name follows.
pub const BOOST: &str = "vpaCpuStartupBoost/";

/// The containers that admission saw. Nothing when the pod does not say, or says it in a way that nobody writes: then
/// upstream takes it that all were seen.
pub fn observed_containers(pod: &Pod) -> Option<Vec<&str>> {
    parse_observed_containers(pod.annotation(OBSERVED)?)
}

/// Reads a value of [`OBSERVED`]: names with a comma and a blank between them, all of them names that a container can
/// have. An empty value lists nothing.
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
    fn only_what_upstream_would_write_is_read() {
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
