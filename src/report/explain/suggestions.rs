//! Suggests similar names for a mistyped one.

const MAX_SUGGESTIONS: usize = 3;

/// Returns the names most similar to the typed one, most similar first.
pub fn suggestions<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut candidates: Vec<(usize, &str)> =
        names.into_iter().map(|name| (edit_distance(typed, name), name)).collect();
    candidates.sort_unstable();
    // If there are similar names, omit the others.
    let is_similar =
        |(distance, name): &(usize, &str)| *distance <= name.len().max(typed.len()) / 3;
    if candidates.first().is_some_and(is_similar) {
        candidates.retain(is_similar);
    }
    candidates.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name).collect()
}

/// What to do if no object has this name: the most similar of these names, or where to look for objects of this kind.
pub fn not_found_hint(kinds: &str, namespace: &str, name: &str, names: &[String]) -> String {
    let near = suggestions(name, names.iter().map(String::as_str));
    if near.is_empty() {
        return format!(
            "no {kinds} in namespace {namespace}; specify the namespace as NAMESPACE/NAME or with -n"
        );
    }
    format!("did you mean {}?", near.join(", "))
}

/// The Levenshtein distance; 1 if one name is a prefix of the other.
fn edit_distance(one: &str, other: &str) -> usize {
    if !one.is_empty() && (other.starts_with(one) || one.starts_with(other)) {
        return 1;
    }
    strsim::levenshtein(one, other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_suggested_and_otherwise_some_existing_ones() {
        let names = ["worker", "web", "web-db", "billing", "wbe"];
        assert_eq!(suggestions("webb", names), ["web", "web-db"]);
        assert_eq!(suggestions("billling", names), ["billing"]);
        assert_eq!(suggestions("web-", names), ["web", "web-db"]);
        assert_eq!(suggestions("zzzzzzzz", names).len(), 3);
        assert!(suggestions("web", []).is_empty());
    }
}
