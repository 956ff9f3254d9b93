//! Values from a user's spec as a single segment of a request path.

use crate::cluster::list_stream::encode_query;

/// A name as one segment of a path. As in client-go, names that no object can have and that would change the path are
/// rejected; other characters that have a meaning in a URL are encoded.
pub(super) fn path_segment(what: &str, name: &str) -> Result<String, String> {
    let refused = |why: &str| Err(format!("invalid {what} {name:?}: {why}"));
    match name {
        "" => refused("may not be empty"),
        "." | ".." => refused("may not be '.' or '..'"),
        _ if name.contains('/') => refused("may not contain '/'"),
        _ if name.contains('%') => refused("may not contain '%'"),
        _ => Ok(encode_query(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_from_a_spec_never_leads_to_another_path() {
        for name in ["web", "web-7d5f9c4b6d", "system.web_2", "a..b"] {
            assert_eq!(path_segment("resource name", name).as_deref(), Ok(name));
        }
        for (name, encoded) in [("a?watch=1", "a%3Fwatch%3D1"), ("a#b", "a%23b"), ("a b", "a%20b")]
        {
            assert_eq!(path_segment("resource name", name).as_deref(), Ok(encoded));
        }
        for (name, why) in [
            ("", "may not be empty"),
            (".", "may not be '.' or '..'"),
            ("..", "may not be '.' or '..'"),
            ("x/status?fieldManager=", "may not contain '/'"),
            ("a/../../../namespaces/other/deployments/x", "may not contain '/'"),
            ("..%2f..%2fother", "may not contain '%'"),
        ] {
            let refused = path_segment("resource name", name).expect_err(name);
            assert_eq!(refused, format!("invalid resource name {name:?}: {why}"));
        }
    }
}
