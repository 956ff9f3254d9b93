//! How the objects are called. Which container one is of is in its spec, never in its name.

use twox_hash::XxHash3_64;

use plimsoll_core::types::ContainerKey;

/// The longest name that an object may have.
const LONGEST: usize = 253;

/// The name as upstream makes it. Two keys can have the same one: `a` and `b-c`, `a-b` and `c`.
pub fn upstream_name(key: &ContainerKey) -> String {
    format!("{}-{}", key.vpa.name, key.container)
}

/// The name of a new object: upstream's, unless that is too long or taken by another key.
pub fn object_name(key: &ContainerKey, plain_is_taken: bool) -> String {
    let plain = upstream_name(key);
    if plain.len() <= LONGEST && !plain_is_taken {
        return plain;
    }
    let unique = format!("{}/{}", key.vpa.name, key.container);
    let end = format!("-{:016x}", XxHash3_64::oneshot(unique.as_bytes()));
    // All characters are ASCII, as `why_impossible` says.
    let beginning: String = plain.chars().take(LONGEST - end.len()).collect();
    format!("{}{end}", beginning.trim_end_matches(['-', '.']))
}

/// Why no object can be of this key, if so.
pub fn invalid_key_reason(key: &ContainerKey) -> Option<String> {
    let parts = [
        ("namespace", &key.vpa.namespace),
        ("VerticalPodAutoscaler", &key.vpa.name),
        ("container", &key.container),
    ];
    let wrong = parts.into_iter().find(|(_, name)| !is_possible(name))?;
    Some(format!("no {} can be called {:?}", wrong.0, wrong.1))
}

fn is_possible(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let inner = name.bytes().all(|byte| plain(byte) || byte == b'-' || byte == b'.');
    let ends = name.bytes().next().is_some_and(plain) && name.bytes().last().is_some_and(plain);
    inner && ends && name.len() <= LONGEST
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::types::ObjectKey;

    fn key(vpa: &str, container: &str) -> ContainerKey {
        ContainerKey::new(ObjectKey::new("shop", vpa), container)
    }

    #[test]
    fn a_name_is_upstreams_unless_it_is_taken_or_too_long() {
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
                assert!(is_possible(name) && !name.contains(".-"), "{name}");
            }
        }
    }

    #[test]
    fn names_that_no_object_can_have_are_told() {
        assert_eq!(invalid_key_reason(&key("web.v1", "app-2")), None);
        for (vpa, container) in
            [("", "a"), ("a", ""), ("a/b", "c"), ("a", "Ä"), ("-a", "b"), ("a", "../x")]
        {
            assert!(invalid_key_reason(&key(vpa, container)).is_some(), "{vpa} {container}");
        }
    }
}
