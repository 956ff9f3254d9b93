//! What is wrong with the annotations of a VPA, whoever reads them.

use std::collections::BTreeMap;

use plimsoll_core::{
    api::annotation::BadAnnotation, recommender::tuning::Tuning, sizing::Wishes,
    updater::guard::window::Windows,
};

/// Of all of them.
pub(super) fn bad(annotations: &BTreeMap<String, String>) -> Vec<BadAnnotation> {
    let (_, mut bad) = Tuning::from_annotations(annotations);
    bad.extend(bad_for_writers(annotations));
    bad
}

/// Of those by which pods are changed: they are read whatever the recommender is told.
pub(super) fn bad_for_writers(annotations: &BTreeMap<String, String>) -> Vec<BadAnnotation> {
    let (_, mut bad) = Wishes::read(annotations);
    bad.extend(Windows::of(annotations).err());
    bad
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::api::annotation::KEYS;

    #[test]
    fn no_annotation_is_read_without_its_nonsense_being_named() {
        for key in KEYS {
            let annotations = [(key.name.to_owned(), "(nonsense)".to_owned())].into();
            let bad = bad(&annotations);
            assert_eq!(bad.iter().map(|bad| bad.key).collect::<Vec<_>>(), [key.name]);
            let is_for_writers = !key.readers.contains(&"recommender");
            assert_eq!(bad_for_writers(&annotations).len(), usize::from(is_for_writers));
        }
    }
}
