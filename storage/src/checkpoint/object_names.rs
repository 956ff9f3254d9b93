//! Names of checkpoint objects. The spec, not the name, determines the container.

use twox_hash::XxHash3_64;

use plimsoll_core::types::ContainerKey;

const MAX_LENGTH: usize = 253;

/// Upstream's name. Two keys can have the same one: `a` and `b-c`, `a-b` and `c`.
pub fn upstream_name(key: &ContainerKey) -> String {
    format!("{}-{}", key.vpa.name, key.container)
}

/// The name of a new object: upstream's, unless it is too long or used by another key.
pub fn object_name(key: &ContainerKey, upstream_is_taken: bool) -> String {
    let upstream = upstream_name(key);
    if upstream.len() <= MAX_LENGTH && !upstream_is_taken {
        return upstream;
    }
    let unique = format!("{}/{}", key.vpa.name, key.container);
    let suffix = format!("-{:016x}", XxHash3_64::oneshot(unique.as_bytes()));
    // All characters are ASCII, as `invalid_key_reason` ensures.
    let prefix: String = upstream.chars().take(MAX_LENGTH - suffix.len()).collect();
    format!("{}{suffix}", prefix.trim_end_matches(['-', '.']))
}

/// Why a key cannot be that of an object, if so.
pub fn invalid_key_reason(key: &ContainerKey) -> Option<String> {
    let parts = [
        ("namespace", &key.vpa.namespace),
        ("VerticalPodAutoscaler", &key.vpa.name),
        ("container", &key.container),
    ];
    let invalid = parts.into_iter().find(|(_, name)| !is_valid_name(name))?;
    Some(format!("invalid name of a {}: {:?}", invalid.0, invalid.1))
}

fn is_valid_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let inner = name.bytes().all(|byte| plain(byte) || byte == b'-' || byte == b'.');
    let ends = name.bytes().next().is_some_and(plain) && name.bytes().last().is_some_and(plain);
    inner && ends && name.len() <= MAX_LENGTH
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::types::ObjectKey;

    fn key(vpa: &str, container: &str) -> ContainerKey {
        ContainerKey::new(ObjectKey::new("shop", vpa), container)
    }

    #[test]
    fn an_object_has_upstreams_name_unless_it_is_taken_or_too_long() {
        assert_eq!(object_name(&key("web", "app"), false), "web-app");
        assert_eq!(upstream_name(&key("a", "b-c")), upstream_name(&key("a-b", "c")));
        let (one, other) =
            (object_name(&key("a", "b-c"), true), object_name(&key("a-b", "c"), true));
        assert_ne!(one, other);
        for long in ["v".repeat(252), "v.".repeat(118) + "vvv", "v".repeat(253)] {
            let (one, other) = (
                object_name(&key(&long, "app"), false),
                object_name(&key(&long, "sidecar"), false),
            );
            assert_ne!(one, other);
            for name in [&one, &other] {
                assert!(is_valid_name(name) && !name.contains(".-"), "{name}");
            }
        }
    }

    #[test]
    fn invalid_object_names_are_reported_with_the_reason() {
        assert_eq!(invalid_key_reason(&key("web.v1", "app-2")), None);
        for (vpa, container) in
            [("", "a"), ("a", ""), ("a/b", "c"), ("a", "Ä"), ("-a", "b"), ("a", "../x")]
        {
            assert!(invalid_key_reason(&key(vpa, container)).is_some(), "{vpa} {container}");
        }
    }
}
